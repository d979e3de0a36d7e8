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

// Install is Windows'.
func Install(context.Context, Config) (Notes, error) { return nil, unsupported() }

// Start is Windows'.
func Start(context.Context, string) error { return unsupported() }

// Stop is Windows'.
func Stop(context.Context, string) error { return unsupported() }

// Remove is Windows'.
func Remove(context.Context, string) error { return unsupported() }

// Query is Windows'.
func Query(string) (Status, error) { return Status{}, unsupported() }

// Run is Windows'.
func Run(string, time.Duration, func(ctx context.Context, ready func()) error) error {
	return unsupported()
}

// Events is Windows'.
type Events struct{}

// OpenEvents is Windows'.
func OpenEvents(string) (*Events, error) { return nil, unsupported() }

// Close is Windows'.
func (*Events) Close() error { return nil }

// Write is Windows'.
func (*Events) Write(slog.Level, string) error { return unsupported() }
