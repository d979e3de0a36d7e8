package powertest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// collector takes the failures of one state, which may be expected.
type collector struct {
	testing.TB
	context  context.Context
	mu       sync.Mutex
	found    []string
	cleanups []func()
}

// Errorf records a failure.
func (c *collector) Errorf(format string, arguments ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = append(c.found, fmt.Sprintf(format, arguments...))
}

// Error records a failure.
func (c *collector) Error(arguments ...any) { c.Errorf("%s", fmt.Sprint(arguments...)) }

// Fatalf records a failure and ends the check.
func (c *collector) Fatalf(format string, arguments ...any) {
	c.Errorf(format, arguments...)
	runtime.Goexit()
}

// Fatal records a failure and ends the check.
func (c *collector) Fatal(arguments ...any) { c.Fatalf("%s", fmt.Sprint(arguments...)) }

// FailNow ends the check.
func (c *collector) FailNow() { c.Fatal("failed") }

// Helper does nothing.
func (c *collector) Helper() {}

// Cleanup has f called after the check.
func (c *collector) Cleanup(f func()) { c.cleanups = append(c.cleanups, f) }

// Context is alive during the cleanup, too.
func (c *collector) Context() context.Context { return c.context }

// run calls check and the cleanups, and returns the failures.
func (c *collector) run(check func()) []string {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			for _, cleanup := range slices.Backward(c.cleanups) {
				cleanup()
			}
		}()
		check()
	}()
	<-ended
	return c.found
}
