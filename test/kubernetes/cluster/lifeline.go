package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A lifeline is a pipe from a parent to a child that must not act before the
// parent has recorded and placed it. The child waits for a word; a parent that
// dies first never says it, and the child ends, having made nothing.
//
// A parent that keeps its end open keeps the child: when the parent ends,
// however that comes, the child sees the end of the pipe.

// lifelineFD is where a child finds its end: the first after stderr.
const lifelineFD = 3

const goAhead = "go\n"

// startOnLifeline starts a command that waits for the word. start is cmd.Start,
// or what takes its place.
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

// giveGoAhead says the word.
func giveGoAhead(lifeline io.Writer) error {
	if _, err := io.WriteString(lifeline, goAhead); err != nil {
		return fmt.Errorf("cluster: the process that was started has ended: %w", err)
	}
	return nil
}

// awaitGoAhead waits for the word. What it returns ends with the parent.
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
