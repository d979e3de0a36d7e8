//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// driver is a running `holdfast driver` with clients.
type driver struct {
	command    *exec.Cmd
	connection *grpc.ClientConn
	csi.ControllerClient
	csi.NodeClient
	dir  string // of this driver: socket, pool, kubelet directory
	pool string
	mu   sync.Mutex
	used []*volume // in the order of their creation
}

// startDriver starts the driver in a new directory; a pool image of
// imageGiB, or a plain directory when that is 0.
func startDriver(ctx context.Context, s settings, name string, imageGiB int, flags ...string) (*driver, error) {
	dir := filepath.Join(s.scratch, name)
	d := &driver{dir: dir, pool: filepath.Join(dir, "pool")}
	if err := os.MkdirAll(filepath.Join(dir, "kubelet"), 0o750); err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "csi.sock")
	args := []string{
		"driver", "all", "--endpoint=unix://" + socket, "--backend=local", "--node-id=bench",
		"--pool=" + d.pool, "--kubelet-dir=" + filepath.Join(dir, "kubelet"), "--log-level=error",
	}
	if imageGiB > 0 {
		args = append(args, "--pool-image="+filepath.Join(dir, "pool.img"), fmt.Sprintf("--pool-image-size=%dGi", imageGiB))
	}
	d.command = exec.CommandContext(ctx, s.holdfast, append(args, flags...)...)
	d.command.Stderr = os.Stderr
	d.command.Cancel = func() error { return d.command.Process.Signal(syscall.SIGTERM) }
	if err := d.command.Start(); err != nil {
		return nil, err
	}
	var err error
	d.connection, err = grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	d.ControllerClient, d.NodeClient = csi.NewControllerClient(d.connection), csi.NewNodeClient(d.connection)
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := csi.NewIdentityClient(d.connection).Probe(waiting, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		return nil, errors.Join(fmt.Errorf("the driver does not answer: %w", err), d.stop())
	}
	return d, nil
}

// stop ends the driver and unmounts its pool image, if it has one.
func (d *driver) stop() error {
	if d.connection != nil {
		_ = d.connection.Close()
	}
	err := d.command.Process.Signal(syscall.SIGTERM)
	err = errors.Join(err, d.command.Wait())
	if unmountErr := syscall.Unmount(d.pool, 0); unmountErr != nil && !errors.Is(unmountErr, syscall.EINVAL) && !errors.Is(unmountErr, syscall.ENOENT) {
		err = errors.Join(err, fmt.Errorf("unmount %s: %w", d.pool, unmountErr))
	}
	return err
}

// with runs measurements against a driver and stops it.
func with(ctx context.Context, s settings, name string, imageGiB int, measure func(*driver) ([]row, error)) (rows []row, err error) {
	d, err := startDriver(ctx, s, name, imageGiB)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.abandon(context.WithoutCancel(ctx))
		}
		err = errors.Join(err, d.stop())
	}()
	return measure(d)
}

// abandon takes the volumes out of use after a failure, as far as that goes:
// the directory is about to be removed.
func (d *driver) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, v := range d.used {
		_ = v.unpublish(ctx)
		_ = v.unstage(ctx)
	}
}

func mounted(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
	}
}

func block() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

// volume is one volume of a driver with the paths it is used at.
type volume struct {
	*driver
	id              string
	size            int64
	capability      *csi.VolumeCapability
	staging, target string
}

func (d *driver) create(ctx context.Context, name string, size int64, capability *csi.VolumeCapability, source *csi.VolumeContentSource, parameters map[string]string) (*volume, error) {
	response, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{capability}, VolumeContentSource: source, Parameters: parameters,
	})
	if err != nil {
		return nil, err
	}
	base := filepath.Join(d.dir, "kubelet", name)
	v := &volume{
		driver: d, id: response.GetVolume().GetVolumeId(), size: response.GetVolume().GetCapacityBytes(), capability: capability,
		staging: filepath.Join(base, "staging"), target: filepath.Join(base, "target"),
	}
	d.mu.Lock()
	d.used = append(d.used, v)
	d.mu.Unlock()
	return v, os.MkdirAll(v.staging, 0o750)
}

func (v *volume) stage(ctx context.Context) error {
	_, err := v.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: v.capability})
	return err
}

func (v *volume) unstage(ctx context.Context) error {
	_, err := v.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging})
	return err
}

func (v *volume) publish(ctx context.Context) error {
	_, err := v.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, TargetPath: v.target, VolumeCapability: v.capability,
	})
	return err
}

func (v *volume) unpublish(ctx context.Context) error {
	_, err := v.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target})
	return err
}

func (v *volume) up(ctx context.Context) error {
	if err := v.stage(ctx); err != nil {
		return err
	}
	return v.publish(ctx)
}

// down takes the volume out of use and deletes it.
func (v *volume) down(ctx context.Context) error {
	if err := v.unpublish(ctx); err != nil {
		return err
	}
	if err := v.unstage(ctx); err != nil {
		return err
	}
	return v.delete(ctx)
}

func (v *volume) delete(ctx context.Context) error {
	_, err := v.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
	return err
}

// tool runs a program of an alternative to its end.
func tool(ctx context.Context, name string, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, args, err, output)
	}
	return string(output), nil
}
