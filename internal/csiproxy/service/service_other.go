//go:build !windows

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"
)

func unsupported() error {
	return fmt.Errorf("services of Windows on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Install returns errors.ErrUnsupported.
func Install(context.Context, Config) (Notes, error) { return nil, unsupported() }

// Start returns errors.ErrUnsupported.
func Start(context.Context, string) error { return unsupported() }

// Stop returns errors.ErrUnsupported.
func Stop(context.Context, string) error { return unsupported() }

// Remove returns errors.ErrUnsupported.
func Remove(context.Context, string) error { return unsupported() }

// Query returns errors.ErrUnsupported.
func Query(string) (Status, error) { return Status{}, unsupported() }

// Run returns errors.ErrUnsupported.
func Run(string, time.Duration, func(ctx context.Context, ready func()) error) error {
	return unsupported()
}

// Events does not exist on this system.
type Events struct{}

// OpenEvents returns errors.ErrUnsupported.
func OpenEvents(string) (*Events, error) { return nil, unsupported() }

// Close does nothing.
func (*Events) Close() error { return nil }

// Write returns errors.ErrUnsupported.
func (*Events) Write(slog.Level, string) error { return unsupported() }
