//go:build wine && windows

package proxy

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	disk "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk/v1"
)

// addDisk adds a blank disk to the simulated machine and returns its number.
func (p *process) addDisk(t *testing.T, serial string) uint32 {
	t.Helper()
	var added struct{ Number uint32 }
	p.steer(t, "POST", "/disks", map[string]any{"serial": serial, "size": 1 << 30}, &added)
	return added.Number
}

// A slow operation on one disk delays no other disk, and a client that vanishes
// or gives up leaves nothing that is in others' way.
func TestDisks_aSlowOneDelaysNoOther(t *testing.T) {
	p := simulated(t).ready(t)
	slow, quick := p.addDisk(t, "slow"), p.addDisk(t, "quick")
	p.steer(t, "POST", "/faults", map[string]any{"call": "IOCTL_DISK_CREATE_DISK", "times": 1, "action": "hang"}, nil)
	const pipe = `\\.\pipe\csi-proxy-disk-v1`
	held := connect(t, pipe)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- held.Invoke(ctx, "/v1.Disk/PartitionDisk", &disk.PartitionDiskRequest{DiskNumber: slow}, &emptypb.Empty{})
	}()
	time.Sleep(300 * time.Millisecond)
	for range 10 {
		begin := time.Now()
		if err := invoke(t, connect(t, pipe), "/v1.Disk/PartitionDisk", &disk.PartitionDiskRequest{DiskNumber: quick}, &emptypb.Empty{}); err != nil {
			t.Errorf("the other disk: %v", err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the other disk took %v", took)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the slow disk is not slow: %v", err)
	default:
	}
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the caller that left got %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	p.ready(t)
}
