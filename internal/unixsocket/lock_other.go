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

// staleDials is how many times a socket must refuse to be a dead one.
const staleDials = 4

// protect does nothing: Windows has no umask and no mode of sockets, and opens a
// socket's file for no change of attributes. Who may connect is by the access
// list of the directory.
func protect(string) error { return nil }

// isRefused takes any failure to connect that is not a timeout for a dead
// socket: Windows reports several.
func isRefused(err error) bool {
	failure, ok := errors.AsType[net.Error](err)
	return ok && !failure.Timeout()
}
