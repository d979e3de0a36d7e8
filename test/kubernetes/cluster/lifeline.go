package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A lifeline is a pipe from a parent to a child that must not act before the parent has
// recorded it and moved it to its control group. The child waits for the go-ahead. If the
// parent dies first, the child reads the end of the pipe and exits without any effect.
//
// While the parent keeps its end open, the child lives: when the parent ends, also by a
// crash, the child reads the end of the pipe.

// lifelineFD is the child's file descriptor of the pipe: the first after stderr.
const lifelineFD = 3

const goAhead = "go\n"

// startOnLifeline starts a command that waits for the go-ahead. start is cmd.Start or a
// replacement.
func startOnLifeline(cmd *exec.Cmd, start func() error) (*os.File, error) {
	childEnd, parentEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = childEnd.Close() }()
	cmd.ExtraFiles = []*os.File{childEnd}
	if err := start(); err != nil {
		return nil, errors.Join(err, parentEnd.Close())
	}
	return parentEnd, nil
}

// giveGoAhead sends the go-ahead.
func giveGoAhead(lifeline io.Writer) error {
	if _, err := io.WriteString(lifeline, goAhead); err != nil {
		return fmt.Errorf("cluster: the process that was started has ended: %w", err)
	}
	return nil
}

// awaitGoAhead waits for the go-ahead. It returns the pipe, which ends with the parent.
func awaitGoAhead() (io.ReadCloser, error) {
	pipe := os.NewFile(lifelineFD, "lifeline")
	word, err := bufio.NewReaderSize(pipe, 16).ReadString('\n')
	if err != nil || word != goAhead {
		return nil, fmt.Errorf("cluster: the parent ended before all was recorded: %w", err)
	}
	return pipe, nil
}

// endWith ends this process when its parent has ended.
func endWith(lifeline io.Reader) {
	_, _ = io.Copy(io.Discard, lifeline)
	os.Exit(0)
}
