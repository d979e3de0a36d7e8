// Command ec2emu serves the part of EC2's API that EBS needs, on this machine; see
// docs/reference/ec2emu.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit codes are those of holdfast: 1 failed, 2 the command line is wrong.
const (
	failed = 1
	misled = 2
)

func run(arguments []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := parse(arguments, stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "ec2emu: %v\nSee 'ec2emu --help'.\n", err)
		return misled
	}
	if err := s.run(ctx, stdout, stderr); err != nil {
		_, _ = fmt.Fprintf(stderr, "ec2emu: %v\n", err)
		return failed
	}
	return 0
}
