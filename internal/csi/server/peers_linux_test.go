package server

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
)

// A peer of the driver's socket that is silent, slow, greedy or of another protocol costs
// bounded memory, and another client is answered.
func TestServer_survivesHostilePeers(t *testing.T) {
	i := start(t, All, attaching{memory{newPlain()}})
	peertest.Attack(t, peertest.Server{Network: "unix", Address: i.socket, Path: csi.Identity_Probe_FullMethodName, Ask: func(ctx context.Context) error {
		connection, err := grpc.NewClient("unix:"+i.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }()
		_, err = csi.NewIdentityClient(connection).Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true))
		return err
	}})
}
