package client_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

// driver answers the tests' calls.
type driver struct {
	csi.UnimplementedNodeServer
	csi.UnimplementedSnapshotMetadataServer
	deadline, cancelled chan bool
	header              metadata.MD
}

func (d *driver) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	d.header, _ = metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("from", "header"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("to", "trailer"))
	return &csi.NodeGetInfoResponse{NodeId: "n1"}, nil
}

func (d *driver) NodeUnpublishVolume(
	context.Context, *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	detailed, _ := status.New(codes.NotFound, "no volume there").WithDetails(wrapperspb.String("detail"))
	return nil, detailed.Err()
}

func (d *driver) NodePublishVolume(
	ctx context.Context, r *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	if r.GetVolumeId() == "secret" {
		return nil, status.Error(codes.Unauthenticated, "bad password "+r.GetSecrets()["password"])
	}
	_, has := ctx.Deadline()
	d.deadline <- has
	<-ctx.Done()
	d.cancelled <- true
	return nil, ctx.Err()
}

func (d *driver) GetMetadataAllocated(
	r *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer,
) error {
	for i := range 3 {
		if err := stream.Send(&csi.GetMetadataAllocatedResponse{VolumeCapacityBytes: int64(i + 1)}); err != nil {
			return err
		}
	}
	if r.GetSnapshotId() == "broken" {
		return status.Error(codes.OutOfRange, "too far")
	}
	return nil
}

// log is a log that several goroutines write.
type log struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(text)
}

func (l *log) waitFor(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		got := l.out.String()
		l.mu.Unlock()
		if strings.Contains(got, text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the log has no %q:\n%s", text, got)
		}
	}
}

// between starts a driver and a relay before it, and gives a connection to the relay.
func between(t *testing.T) (*driver, *grpc.ClientConn, *log) {
	t.Helper()
	d := &driver{deadline: make(chan bool, 1), cancelled: make(chan bool, 1)}
	directory := t.TempDir()
	real, watched := filepath.Join(directory, "real.sock"), filepath.Join(directory, "watched.sock")
	listen := func(path string) net.Listener {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	csi.RegisterNodeServer(server, d)
	csi.RegisterSnapshotMetadataServer(server, d)
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "other.Service", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Echo", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			text := &wrapperspb.StringValue{}
			return text, decode(text)
		},
	}}}, d)
	behind := listen(real) // before the first call: calls do not wait for it
	go func() { _ = server.Serve(behind) }()
	t.Cleanup(server.Stop)
	out := &log{}
	relay, err := csiclient.NewRelay(real, csiclient.RelayOptions{Logger: slog.New(slog.NewTextHandler(out, nil)), Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	listener := listen(watched)
	go func() { ended <- relay.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	connection, err := csiclient.Connect(watched)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return d, connection, out
}

func TestRelay_passesMetadataBothWays(t *testing.T) {
	d, connection, out := between(t)
	var header, trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "who", "me", "raw-bin", "\x00\x01")
	answer, err := csi.NewNodeClient(connection).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil || answer.GetNodeId() != "n1" {
		t.Fatalf("got %v, %v", answer, err)
	}
	if got := d.header.Get("who"); len(got) != 1 || got[0] != "me" || d.header.Get("raw-bin")[0] != "\x00\x01" {
		t.Errorf("the driver got the metadata %v", d.header)
	}
	if header.Get("from")[0] != "header" || trailer.Get("to")[0] != "trailer" {
		t.Errorf("the caller got the header %v and the trailer %v", header, trailer)
	}
	out.waitFor(t, "rpc=NodeGetInfo")
	out.waitFor(t, `nodeId`)
}

func TestRelay_keepsTheStatusAndItsDetails(t *testing.T) {
	_, connection, out := between(t)
	_, err := csi.NewNodeClient(connection).NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v1"})
	got := status.Convert(err)
	if got.Code() != codes.NotFound || got.Message() != "no volume there" || len(got.Details()) != 1 || !proto.Equal(got.Details()[0].(proto.Message), wrapperspb.String("detail")) {
		t.Errorf("got %v with %v", got, got.Details())
	}
	out.waitFor(t, "volume=v1")
	out.waitFor(t, "code=NotFound")
}

func TestRelay_hidesSecretsInTheLogAlone(t *testing.T) {
	_, connection, out := between(t)
	_, err := csi.NewNodeClient(connection).NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "secret", Secrets: map[string]string{"password": "hunter2"}})
	if status.Convert(err).Message() != "bad password hunter2" {
		t.Errorf("the caller got %v", err)
	}
	out.waitFor(t, "bad password (redacted)")
	if strings.Contains(out.out.String(), "hunter2") {
		t.Errorf("the log has the secret:\n%s", &out.out)
	}
}

func TestRelay_passesDeadlineAndCancellation(t *testing.T) {
	d, connection, out := between(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	done := make(chan error, 1)
	go func() {
		_, err := csi.NewNodeClient(connection).NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: "slow"})
		done <- err
	}()
	if !<-d.deadline {
		t.Error("the driver knew no deadline")
	}
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
	<-d.cancelled
	out.waitFor(t, "code=Canceled")
}

func TestRelay_passesStreams(t *testing.T) {
	_, connection, out := between(t)
	for id, want := range map[string]codes.Code{"good": codes.OK, "broken": codes.OutOfRange} {
		client := csiclient.New(connection, csiclient.Options{})
		count := 0
		err := client.Stream(t.Context(), "/csi.v1.SnapshotMetadata/GetMetadataAllocated", &csi.GetMetadataAllocatedRequest{SnapshotId: id},
			func() proto.Message { return &csi.GetMetadataAllocatedResponse{} },
			func(proto.Message) error { count++; return nil })
		number, _ := csiclient.CodeNumber(err)
		if count != 3 || codes.Code(number) != want { //nolint:gosec // codes end at 16
			t.Errorf("%s: %d answers, %v", id, count, err)
		}
		out.waitFor(t, "snapshot="+id)
	}
	out.waitFor(t, "answers=3")
}

func TestRelay_forwardsUnknownMethods(t *testing.T) {
	_, connection, out := between(t)
	var answer wrapperspb.StringValue
	text := wrapperspb.String(strings.Repeat("x", 5<<20)) // more than gRPC's default
	if err := connection.Invoke(t.Context(), "/other.Service/Echo", text, &answer); err != nil || answer.GetValue() != text.GetValue() {
		t.Errorf("got %d bytes, %v", len(answer.GetValue()), err)
	}
	out.waitFor(t, "rpc=/other.Service/Echo")
	if err := connection.Invoke(t.Context(), "/other.Service/None", text, &answer); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
}

func TestRelay_withoutADriver(t *testing.T) {
	relay, err := csiclient.NewRelay(filepath.Join(t.TempDir(), "none.sock"), csiclient.RelayOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "w.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Serve(ctx, listener) }()
	connection, err := csiclient.Connect(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if _, err := csi.NewNodeClient(connection).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
