//go:build !linux

package host

import (
	"context"
	"errors"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// Exec needs Linux.
func Exec(context.Context, *api.Client, ExecOptions) (int, error) {
	return 0, errors.New("commands get volumes on Linux only")
}
