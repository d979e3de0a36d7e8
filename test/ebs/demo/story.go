//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/test/ebs/lab"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

const (
	gibibyte = 1 << 30
	greeting = "written on the first instance\n"
)

// story runs a volume's life, step by step.
type story struct {
	controller *lab.Process
	nodes      map[string]*lab.Process // by instance ID
	here, away string                  // instance IDs
	mounted    map[string]string       // instance ID by volume ID
	began      time.Time
}

func newStory(ctx context.Context, l *lab.Lab) (*story, error) {
	instances := lab.Pair()
	s := &story{nodes: map[string]*lab.Process{}, mounted: map[string]string{}, here: instances[0].ID,
		away: instances[1].ID, began: time.Now()}
	var err error
	if s.controller, err = l.Controller(ctx, "controller"); err != nil {
		return nil, err
	}
	for _, i := range instances {
		if s.nodes[i.ID], err = l.Node(ctx, i); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// say prints a step with the time since the beginning.
func (s *story) say(format string, values ...any) {
	fmt.Printf("%6.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, values...))
}

func (s *story) run(ctx context.Context) error {
	volume, err := s.create(ctx, "demo", nil)
	if err != nil {
		return err
	}
	if err := s.firstInstance(ctx, volume); err != nil {
		return err
	}
	snapshot, err := s.snapshot(ctx, volume.GetVolumeId())
	if err != nil {
		return err
	}
	if err := s.grow(ctx, volume); err != nil {
		return err
	}
	if err := s.leave(ctx, volume.GetVolumeId(), s.here); err != nil {
		return err
	}
	if err := s.secondInstance(ctx, volume); err != nil {
		return err
	}
	if err := s.restore(ctx, snapshot); err != nil {
		return err
	}
	return s.remove(ctx, volume.GetVolumeId(), snapshot.GetSnapshotId())
}

// firstInstance mounts the volume and writes to it.
func (s *story) firstInstance(ctx context.Context, volume *csi.Volume) error {
	target, err := s.arrive(ctx, volume, s.here)
	if err != nil {
		return err
	}
	s.say("written: %q", greeting)
	return write(file(target))
}

// write makes the file durable, because a snapshot has only data that reached the device.
func write(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(greeting)
	return errors.Join(err, f.Sync(), f.Close())
}

// secondInstance finds what the first wrote, on a filesystem that grew.
func (s *story) secondInstance(ctx context.Context, volume *csi.Volume) error {
	target, err := s.arrive(ctx, volume, s.away)
	if err != nil {
		return err
	}
	if err := s.read(target); err != nil {
		return err
	}
	return s.leave(ctx, volume.GetVolumeId(), s.away)
}

// restore restores a volume from the snapshot and reads it.
func (s *story) restore(ctx context.Context, snapshot *csi.Snapshot) error {
	restored, err := s.create(ctx, "restored", &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot.GetSnapshotId()},
	}})
	if err != nil {
		return err
	}
	target, err := s.arrive(ctx, restored, s.away)
	if err != nil {
		return err
	}
	if err := s.read(target); err != nil {
		return err
	}
	if err := s.leave(ctx, restored.GetVolumeId(), s.away); err != nil {
		return err
	}
	return s.controller.Client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: restored.GetVolumeId()})
}

func (s *story) read(target string) error {
	found, err := os.ReadFile(file(target))
	if err != nil {
		return err
	}
	if string(found) != greeting {
		return fmt.Errorf("%s has %q; want %q", file(target), found, greeting)
	}
	s.say("read: %q", found)
	return nil
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs"}},
	}
}

func (s *story) create(ctx context.Context, name string, source *csi.VolumeContentSource) (*csi.Volume, error) {
	volume, err := s.controller.Client.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: gibibyte},
		Parameters:         map[string]string{"type": "gp3", "tagSpecification_1": "demo=yes"},
		VolumeCapabilities: []*csi.VolumeCapability{capability()}, VolumeContentSource: source,
	})
	if err == nil {
		s.say("created %s: %s, %d GiB, in %v", name, volume.GetVolumeId(), volume.GetCapacityBytes()/gibibyte,
			volume.GetAccessibleTopology()[0].GetSegments()["topology.kubernetes.io/zone"])
	}
	return volume, err
}

// arrive attaches the volume to an instance and mounts it there.
func (s *story) arrive(ctx context.Context, volume *csi.Volume, instance string) (target string, err error) {
	published, err := s.controller.Client.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: volume.GetVolumeId(), NodeId: instance, VolumeCapability: capability(), VolumeContext: volume.GetVolumeContext(),
	})
	if err != nil {
		return "", err
	}
	s.say("attached to %s as %s", instance, published["devicePath"])
	node := s.nodes[instance]
	s.mounted[volume.GetVolumeId()] = instance
	staging, target := s.paths(volume.GetVolumeId(), instance)
	if err := os.MkdirAll(staging, 0o750); err != nil {
		return "", err
	}
	err = node.Client.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: volume.GetVolumeId(), PublishContext: published, StagingTargetPath: staging,
		VolumeCapability: capability(), VolumeContext: volume.GetVolumeContext(),
	})
	if err != nil {
		return "", err
	}
	err = node.Client.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: volume.GetVolumeId(), PublishContext: published, StagingTargetPath: staging, TargetPath: target,
		VolumeCapability: capability(), VolumeContext: volume.GetVolumeContext(),
	})
	if err != nil {
		return "", err
	}
	stats, err := node.Client.NodeGetVolumeStats(ctx,
		&csi.NodeGetVolumeStatsRequest{VolumeId: volume.GetVolumeId(), VolumePath: target})
	if err == nil {
		s.say("mounted on %s with %.2f GiB", instance, float64(stats.GetUsage()[0].GetTotal())/gibibyte)
	}
	return target, err
}

func (s *story) paths(volumeID, instance string) (staging, target string) {
	kubelet := s.nodes[instance].KubeletDir
	return filepath.Join(kubelet, "staging", volumeID), filepath.Join(kubelet, "target-"+volumeID)
}

// unmountAll unmounts the volumes that a failure left mounted.
func (s *story) unmountAll(ctx context.Context) (failed error) {
	for volumeID, instance := range s.mounted {
		failed = errors.Join(failed, s.unmount(ctx, volumeID, instance))
	}
	return failed
}

// leave unmounts the volume and detaches it.
func (s *story) leave(ctx context.Context, volumeID, instance string) error {
	if err := s.unmount(ctx, volumeID, instance); err != nil {
		return err
	}
	err := s.controller.Client.ControllerUnpublishVolume(ctx,
		&csi.ControllerUnpublishVolumeRequest{VolumeId: volumeID, NodeId: instance})
	if err == nil {
		s.say("detached from %s", instance)
	}
	return err
}

func (s *story) unmount(ctx context.Context, volumeID, instance string) error {
	node := s.nodes[instance]
	staging, target := s.paths(volumeID, instance)
	if err := node.Client.NodeUnpublishVolume(ctx,
		&csi.NodeUnpublishVolumeRequest{VolumeId: volumeID, TargetPath: target}); err != nil {
		return err
	}
	if err := node.Client.NodeUnstageVolume(ctx,
		&csi.NodeUnstageVolumeRequest{VolumeId: volumeID, StagingTargetPath: staging}); err != nil {
		return err
	}
	delete(s.mounted, volumeID)
	return nil
}

// snapshot takes a snapshot of the volume and repeats the call, as Kubernetes does, until
// it can be restored.
func (s *story) snapshot(ctx context.Context, volumeID string) (*csi.Snapshot, error) {
	for {
		snapshot, err := s.controller.Client.CreateSnapshot(ctx,
			&csi.CreateSnapshotRequest{SourceVolumeId: volumeID, Name: "demo"})
		if err != nil {
			return nil, err
		}
		if snapshot.GetReadyToUse() {
			s.say("snapshot %s is ready", snapshot.GetSnapshotId())
			return snapshot, nil
		}
		if err := concurrency.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// grow doubles the volume while it is mounted.
func (s *story) grow(ctx context.Context, volume *csi.Volume) error {
	larger := &csi.CapacityRange{RequiredBytes: 2 * gibibyte}
	if _, err := s.controller.Client.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: volume.GetVolumeId(), CapacityRange: larger, VolumeCapability: capability(),
	}); err != nil {
		return err
	}
	staging, target := s.paths(volume.GetVolumeId(), s.here)
	grown, err := s.nodes[s.here].Client.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: volume.GetVolumeId(), VolumePath: target, StagingTargetPath: staging, CapacityRange: larger, VolumeCapability: capability(),
	})
	if err == nil {
		s.say("grown to %d GiB while mounted", grown.GetCapacityBytes()/gibibyte)
	}
	return err
}

func (s *story) remove(ctx context.Context, volumeID, snapshotID string) error {
	if err := s.controller.Client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volumeID}); err != nil {
		return err
	}
	if err := s.controller.Client.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshotID}); err != nil {
		return err
	}
	s.say("deleted the volumes and the snapshot")
	return nil
}
