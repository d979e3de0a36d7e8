//go:build !unix

package unixsocket

import (
	"context"
	"errors"
	"net"
)

// lockDirectory is for systems without flock(2), where two processes that start
// at the same instant are not kept apart.
func lockDirectory(context.Context, string) (unlock func(), err error) { return func() {}, nil }

// isRefused takes any failure to connect that is not a timeout for a dead
// socket: Windows reports several.
func isRefused(err error) bool {
	failure, is := errors.AsType[net.Error](err)
	return is && !failure.Timeout()
}
