// Command holdfast is the whole CSI stack in one binary; see holdfast --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-csi/holdfast/internal/cli"
)

// version is set by the linker (Makefile).
var version string

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Main(ctx, version, os.Args, os.Stdout, os.Stderr)
}
