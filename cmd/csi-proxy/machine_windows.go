package main

import (
	"log/slog"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/cli"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32/native"
)

// open returns the machine that the process runs on.
func open(*slog.Logger) (cli.Opened, error) {
	return cli.Opened{Calls: native.New(native.Options{})}, nil
}
