//go:build wine && linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// raw passes messages through as they are.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(message any) ([]byte, error) {
	bytes, ok := message.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a %T is not a raw message", message)
	}
	return *bytes, nil
}

func (raw) Unmarshal(data []byte, message any) error {
	bytes, ok := message.(*[]byte)
	if !ok {
		return fmt.Errorf("a %T is not a raw message", message)
	}
	*bytes = append([]byte(nil), data...)
	return nil
}

// hands stand between csi-sanity and the controller and do to the machine what
// EC2 does to an instance: a volume that is attached becomes a disk.
type hands struct {
	controller *grpc.ClientConn
	machine    control
}

// attaching serves the controller on another socket.
func attaching(t *testing.T, controller string, machine control) (socket string) {
	t.Helper()
	connection, err := grpc.NewClient(controller, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	h := hands{connection, machine}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(h.pass))
	socket = filepath.Join(t.TempDir(), "csi.sock")
	listener, err := net.Listen("unix", socket)
	must(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		_ = connection.Close()
	})
	return "unix://" + socket
}

// pass hands one call on, and acts when it has succeeded.
func (h hands) pass(_ any, stream grpc.ServerStream) error {
	method, known := grpc.MethodFromServerStream(stream)
	if !known {
		return errors.New("a call without a method")
	}
	var request, response []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	if err := h.controller.Invoke(stream.Context(), method, &request, &response, grpc.ForceCodec(raw{})); err != nil {
		return err
	}
	if err := h.act(stream.Context(), method, request, response); err != nil {
		return fmt.Errorf("%s has succeeded, but the machine does not follow: %w", method, err)
	}
	return stream.SendMsg(&response)
}

func (h hands) act(ctx context.Context, method string, request, response []byte) error {
	switch method {
	case csi.Controller_ControllerPublishVolume_FullMethodName:
		var r csi.ControllerPublishVolumeRequest
		if err := proto.Unmarshal(request, &r); err != nil {
			return err
		}
		size, err := h.sizeOf(ctx, r.GetVolumeId())
		if err != nil {
			return err
		}
		return h.machine.attach(r.GetVolumeId(), size)
	case csi.Controller_ControllerUnpublishVolume_FullMethodName:
		var r csi.ControllerUnpublishVolumeRequest
		if err := proto.Unmarshal(request, &r); err != nil {
			return err
		}
		return h.machine.detach(r.GetVolumeId())
	case csi.Controller_ControllerExpandVolume_FullMethodName:
		var r csi.ControllerExpandVolumeRequest
		var answer csi.ControllerExpandVolumeResponse
		if err := errors.Join(proto.Unmarshal(request, &r), proto.Unmarshal(response, &answer)); err != nil {
			return err
		}
		return h.machine.grow(r.GetVolumeId(), answer.GetCapacityBytes())
	}
	return nil
}

func (h hands) sizeOf(ctx context.Context, volumeID string) (int64, error) {
	volume, err := csi.NewControllerClient(h.controller).ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: volumeID})
	return volume.GetVolume().GetCapacityBytes(), err
}
