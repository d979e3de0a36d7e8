//go:build !unix

package cli

import (
	"context"
	"syscall"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// watchSignals: there is no host on this system.
func watchSignals(bool, func()) (<-chan syscall.Signal, func()) { return nil, func() {} }

func watchSize(context.Context) <-chan api.Size { return nil }
