package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

var handle = "csi-" + strings.Repeat("0123456789abcdef", 4)

// podContext has the kubelet's attributes with podInfoOnMount, over the pod author's.
func podContext(attributes ...string) map[string]string {
	context := map[string]string{
		"csi.storage.k8s.io/pod.name": "pod", "csi.storage.k8s.io/pod.namespace": "default",
		"csi.storage.k8s.io/pod.uid": "uid", "csi.storage.k8s.io/serviceAccount.name": "default",
		"csi.storage.k8s.io/ephemeral": "true",
	}
	for i := 0; i+1 < len(attributes); i += 2 {
		context[attributes[i]] = attributes[i+1]
	}
	return context
}

func (f *fixture) inlineRequest(c backend.Capability, attributes ...string) PublishRequest {
	f.t.Helper()
	return PublishRequest{VolumeID: handle, TargetPath: f.target("scratch", "pod"), Capability: c, VolumeContext: podContext(attributes...)}
}

func (f *fixture) cleanUpInline() {
	f.t.Cleanup(func() {
		if err := f.unpublishInline(); err != nil {
			f.t.Error(err)
		}
	})
}

func (f *fixture) unpublishInline() error {
	f.t.Helper()
	return f.engine.Unpublish(context.Background(), handle, f.target("scratch", "pod"))
}

// wantNothing checks that no volume, device, mount or path is left.
func (f *fixture) wantNothing() {
	f.t.Helper()
	volumes, err := f.backend.Ephemerals(f.t.Context())
	f.must(err)
	if len(volumes) != 0 {
		f.t.Errorf("volumes left: %+v", volumes)
	}
	if files, _ := filepath.Glob(filepath.Join(f.backend.dir, "eph-*")); len(files) != 0 {
		f.t.Errorf("files left: %v", files)
	}
	if _, err := os.Lstat(f.target("scratch", "pod")); !os.IsNotExist(err) {
		f.t.Errorf("the target is left: %v", err)
	}
	nodetest.NoLeaks(f.t, f.dir)
}

func TestInline_livesFromPublishToUnpublish(t *testing.T) {
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			f := newFixture(t)
			f.backend.size = size
			request := f.inlineRequest(filesystem(fsType), "size", "64Mi")
			request.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"] = "secret"
			f.must(f.engine.Publish(t.Context(), request))
			f.write(filepath.Join(request.TargetPath, "file"), "scratch")
			f.must(f.engine.Publish(t.Context(), request))
			f.wantContent(filepath.Join(request.TargetPath, "file"), "scratch")
			if f.runner.runs.Load() != 1 {
				t.Errorf("%d programs; want one mkfs", f.runner.runs.Load())
			}
			want := backend.EphemeralSpec{Handle: handle, Target: request.TargetPath, Attributes: map[string]string{"size": "64Mi"},
				Owner: map[string]string{"pod.name": "pod", "pod.namespace": "default", "pod.uid": "uid", "serviceAccount.name": "default"}}
			if diff := cmp.Diff(want, f.backend.spec); diff != "" {
				t.Errorf("the backend was asked for something else: %s", diff)
			}
			stats, err := f.engine.Stats(t.Context(), handle, request.TargetPath, "")
			if err != nil || stats.Bytes.Total == 0 {
				t.Errorf("stats %+v, %v", stats, err)
			}
			for range 2 {
				f.must(f.unpublishInline())
			}
			f.wantNothing()
			f.must(f.engine.Publish(t.Context(), request))
			if _, err := os.Stat(filepath.Join(request.TargetPath, "file")); !os.IsNotExist(err) {
				t.Errorf("the next pod's volume has the last one's file: %v", err)
			}
			f.must(f.unpublishInline())
			f.wantNothing()
		})
	}
}

func TestInline_readOnly(t *testing.T) {
	f := newFixture(t)
	f.cleanUpInline()
	request := f.inlineRequest(filesystem("ext4"))
	request.ReadOnly = true
	f.must(f.engine.Publish(t.Context(), request))
	if err := os.WriteFile(filepath.Join(request.TargetPath, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write: %v", err)
	}
	f.must(f.engine.Publish(t.Context(), request))
	request.ReadOnly = false
	f.wantError(f.engine.Publish(t.Context(), request), backend.ErrExists)
	request.TargetPath = f.target("scratch", "other")
	f.wantError(f.engine.Publish(t.Context(), request), backend.ErrExists)
	if mounts := nodetest.MountsBelow(t, f.dir); len(mounts) != 1 {
		t.Errorf("refused calls left mounts %v", mounts)
	}
}

func TestInline_refusesRequestsAndKeepsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*PublishRequest)
		want   error
	}{
		"key missing":                {func(r *PublishRequest) { delete(r.VolumeContext, "csi.storage.k8s.io/pod.uid") }, backend.ErrInvalid},
		"forged key alone":           {func(r *PublishRequest) { r.VolumeContext = map[string]string{"csi.storage.k8s.io/ephemeral": "true"} }, backend.ErrInvalid},
		"handle of no inline volume": {func(r *PublishRequest) { r.VolumeID = "vol-a" }, backend.ErrInvalid},
		"handle too short":           {func(r *PublishRequest) { r.VolumeID = "csi-0123" }, backend.ErrInvalid},
		"handle with a path":         {func(r *PublishRequest) { r.VolumeID = "csi-" + strings.Repeat("../", 21) + "a" }, backend.ErrInvalid},
		"block":                      {func(r *PublishRequest) { r.Capability = block() }, backend.ErrInvalid},
		"filesystem":                 {func(r *PublishRequest) { r.Capability = filesystem("ntfs") }, backend.ErrInvalid},
		"mount flag":                 {func(r *PublishRequest) { r.Capability = filesystem("ext4", "no_such_option") }, backend.ErrInvalid},
		"not ephemeral":              {func(r *PublishRequest) { r.VolumeContext["csi.storage.k8s.io/ephemeral"] = "false" }, backend.ErrPrecondition},
		"no parent":                  {func(r *PublishRequest) { r.TargetPath += "/a/b" }, backend.ErrPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			request := f.inlineRequest(filesystem("ext4"))
			c.change(&request)
			f.wantError(f.engine.Publish(t.Context(), request), c.want)
			f.wantNothing()
		})
	}
}

func TestInline_refusedByTheBackend(t *testing.T) {
	f := newFixture(t)
	f.backend.createErr = backend.ErrNoSpace
	f.wantError(f.engine.Publish(t.Context(), f.inlineRequest(filesystem("ext4"))), backend.ErrNoSpace)
	f.wantNothing()
}

func TestInline_backendWithoutIt(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Backend = plainNode{o.Backend} })
	f.wantError(f.engine.Publish(t.Context(), f.inlineRequest(filesystem("ext4"))), backend.ErrInvalid)
	f.must(f.unpublishInline())
	f.must(f.engine.Recover(t.Context()))
}

func TestInline_failedMkfsFreesEverything(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Runner = exits(1) })
	f.wantError(f.engine.Publish(t.Context(), f.inlineRequest(filesystem("ext4"))), backend.ErrPrecondition)
	f.wantNothing()
}

func TestInline_foreignMountAtItsTarget(t *testing.T) {
	f := newFixture(t)
	request := f.inlineRequest(filesystem("ext4"))
	f.must(unix.Mount("another", f.mkdir(request.TargetPath), "tmpfs", 0, "size=64k"))
	f.wantError(f.engine.Publish(t.Context(), request), backend.ErrPrecondition)
	f.wantError(f.unpublishInline(), backend.ErrPrecondition)
	f.must(unix.Unmount(request.TargetPath, 0))
	f.must(f.unpublishInline())
	f.wantNothing()
}

// Only a volume whose storage is known to have failed is taken down without being
// deleted. After any other error the kubelet repeats the call, which deletes it.
func TestInline_isKeptUntilItsRecordIsReadOrItsStorageFailed(t *testing.T) {
	for _, failed := range []bool{false, true} {
		t.Run(fmt.Sprintf("storage failed %t", failed), func(t *testing.T) {
			f := newFixture(t)
			request := f.inlineRequest(filesystem("ext4"))
			f.must(f.engine.Publish(t.Context(), request))
			f.backend.lookupErr, f.backend.failed = backend.ErrUnavailable, failed
			err := f.unpublishInline()
			mounts := nodetest.MountsBelow(t, f.dir)
			if failed && (err != nil || len(mounts) > 0) {
				t.Errorf("got %v with mounts %v; want the volume taken down", err, mounts)
			}
			if !failed && (!errors.Is(err, backend.ErrUnavailable) || len(mounts) != 1) {
				t.Errorf("got %v with mounts %v; want ErrUnavailable and the volume as it was", err, mounts)
			}
			f.backend.lookupErr = nil
			f.must(f.unpublishInline())
			f.wantNothing()
		})
	}
}

func TestRecover_removesUnmountedVolumesAndKeepsOthers(t *testing.T) {
	f := newFixture(t)
	f.cleanUpInline()
	used := f.inlineRequest(filesystem("ext4"))
	f.must(f.engine.Publish(t.Context(), used))
	f.write(filepath.Join(used.TargetPath, "file"), "in use")

	lost := used
	lost.VolumeID = "csi-" + strings.Repeat("f", 64)
	lost.TargetPath = f.target("lost", "pod")
	f.must(f.engine.Publish(t.Context(), lost))
	f.must(unix.Unmount(lost.TargetPath, 0)) // as a reboot does

	f.must(f.engine.Recover(t.Context()))
	f.wantContent(filepath.Join(used.TargetPath, "file"), "in use")
	volumes, err := f.backend.Ephemerals(t.Context())
	if err != nil || len(volumes) != 1 || volumes[0].Handle != handle {
		t.Errorf("volumes %+v, %v", volumes, err)
	}
	if _, err := os.Lstat(lost.TargetPath); !os.IsNotExist(err) {
		t.Errorf("the target of the lost volume: %v", err)
	}
	f.must(f.engine.Unpublish(t.Context(), lost.VolumeID, lost.TargetPath))
}
