//go:build !windows

package peertest

import (
	"context"
	"errors"
	"net"
)

func dialPipe(context.Context, string) (net.Conn, error) { return nil, errors.ErrUnsupported }
