//go:build !windows

package pluginwatch

import (
	"context"
	"errors"
)

// classify needs no probe: the mode marks sockets.
func classify(path string) (Identity, kind, error) {
	identity, ok, err := Identify(path)
	if ok {
		return identity, isSocket, err
	}
	return identity, notSocket, err
}

func systemSpelling() spelling { return ofUnix() }

// dialUnix is of no use where no file is in doubt.
func dialUnix(context.Context, string) error { return errors.ErrUnsupported }
