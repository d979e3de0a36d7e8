// Command csi-proxy does privileged storage operations for CSI node plugins on
// Windows; see csi-proxy --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/cli"
)

// version is set by the linker (Makefile).
var version = "devel"

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, version, cli.Machine{Open: open}, os.Args[1:], os.Stdout, os.Stderr)
}
