//go:build !windows

package main

import (
	"errors"
	"log/slog"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/cli"
)

// open fails: csi-proxy runs only on Windows.
func open(*slog.Logger) (cli.Opened, error) { return cli.Opened{}, errors.ErrUnsupported }
