package api

import (
	"context"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
)

// A user who may read must not keep others from the host, and neither may root's own
// programs that misbehave.
func TestServer_survivesHostilePeers(t *testing.T) {
	f := serve(t)
	peertest.Attack(t, peertest.Server{Network: "unix", Address: f.socket(), Path: "/api/v1/pods", Ask: func(ctx context.Context) error {
		client := DialRoot(f.root)
		defer client.Close()
		_, err := client.Version(ctx)
		return err
	}})
}
