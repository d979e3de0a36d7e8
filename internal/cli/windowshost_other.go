//go:build !windows

package cli

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

const defaultKubeletDir = "/var/lib/kubelet"

func openWindowsHost(context.Context, driverConfig) (*windowsHost, error) {
	return nil, fmt.Errorf("%w on this system", backend.ErrUnsupported)
}
