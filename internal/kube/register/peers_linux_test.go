package register

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
)

// Processes that connect to the registration socket and misbehave keep no kubelet from
// registering the driver.
func TestServer_survivesHostilePeers(t *testing.T) {
	i := run(t, registry(t), time.Hour, time.Millisecond)
	socket := i.offered("")
	peertest.Attack(t, peertest.Server{Network: "unix", Address: socket, Path: registration.Registration_GetInfo_FullMethodName, Memory: 64 << 20, Ask: func(ctx context.Context) error {
		connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }()
		_, err = registration.NewRegistrationClient(connection).GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
		return err
	}})
}
