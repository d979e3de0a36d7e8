package server_test

import (
	"context"
	"testing"

	"github.com/Microsoft/go-winio"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
)

// The same over a named pipe: it has no half-closed state, and a buffer for each direction.
func TestRun_survivesHostileClientsOfAPipe(t *testing.T) {
	definition := own(t, 1, same)
	start(t, server.Options{Versions: []api.Definition{definition}, Transport: native(t)})
	peertest.Attack(t, peertest.Server{Network: "pipe", Address: definition.Pipe(), Path: "/v1.Test/Echo", Ask: func(ctx context.Context) error {
		_, err := call(ctx, dialer(winio.DialPipeContext).connect(t, definition.Pipe()), "v1", "text")
		return err
	}})
}
