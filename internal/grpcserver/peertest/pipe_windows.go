package peertest

import (
	"context"
	"net"

	"github.com/Microsoft/go-winio"
)

func dialPipe(ctx context.Context, path string) (net.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	return winio.DialPipeContext(limited, path)
}
