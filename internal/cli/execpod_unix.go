//go:build unix

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// insists is the number of Ctrl-C after which a command is not waited for any more.
const insists = 3

// watchSignals returns the signals that are the command's. A user who insists is let go.
// With a terminal, whose keys are the command's, what ends this process ends the command,
// too: nothing else tells the host that the window is closed.
func watchSignals(terminal bool, leave func()) (<-chan syscall.Signal, func()) {
	caught, passed := make(chan os.Signal, 16), make(chan syscall.Signal, 16)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		interrupts := 0
		for sent := range caught {
			number, ok := sent.(syscall.Signal)
			if number == syscall.SIGINT {
				interrupts++
			}
			ends := terminal && (number == syscall.SIGHUP || number == syscall.SIGTERM)
			if !ok || ends || interrupts >= insists {
				leave()
				continue
			}
			select {
			case passed <- number:
			default: // the host does not read
			}
		}
	}()
	return passed, func() {
		signal.Stop(caught)
		close(caught)
	}
}

// watchSize returns the sizes that the terminal gets.
func watchSize(ctx context.Context) <-chan api.Size {
	changed, sizes := make(chan os.Signal, 1), make(chan api.Size)
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		defer signal.Stop(changed)
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			columns, rows, err := term.GetSize(int(os.Stdin.Fd()))
			if err != nil {
				continue
			}
			select {
			case sizes <- api.Size{Columns: uint16(columns), Rows: uint16(rows)}: //nolint:gosec // the kernel has 16 bits for each
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}
