//go:build !linux

package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// Run needs Linux.
func Run(_ context.Context, container Container, _ Streams, _ <-chan os.Signal) (int, error) {
	return 0, fmt.Errorf("container %q: run a workload on %s: %w", container.Name, runtime.GOOS, errors.ErrUnsupported)
}
