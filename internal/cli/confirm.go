package cli

import (
	"bufio"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// isTerminal reports whether a person can answer a question.
func isTerminal(input io.Reader) bool {
	file, isFile := input.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// confirms asks a question whose answer is no, unless the line begins with y.
func confirms(command *cobra.Command, question string) bool {
	command.PrintErr(question)
	answer, err := bufio.NewReader(command.InOrStdin()).ReadString('\n')
	return err == nil && strings.HasPrefix(strings.ToLower(answer), "y")
}
