package windows

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// bySerial is a backend whose volumes' IDs are the serial numbers of their disks.
type bySerial struct{}

func (bySerial) NodeInfo(context.Context) (backend.NodeInfo, error) {
	return backend.NodeInfo{ID: "node"}, nil
}

func (bySerial) CheckID(id string) error {
	if strings.HasPrefix(id, "vol-") {
		return nil
	}
	return fmt.Errorf("%w: %s", backend.ErrNotFound, id)
}

func (bySerial) IsVolume(id string, _ map[string]string, disk api.Disk) bool {
	return disk.SerialNumber == id
}

const (
	driver     = "csi.example.com"
	volA, volB = "vol-a", "vol-b"
	stagingA   = kubeletDir + `\plugins\kubernetes.io\csi\x\a\globalmount`
	stagingB   = kubeletDir + `\plugins\kubernetes.io\csi\x\b\globalmount`
	targetA    = kubeletDir + `\pods\1\volumes\kubernetes.io~csi\a\mount`
	targetA2   = kubeletDir + `\pods\2\volumes\kubernetes.io~csi\a\mount`
)

// world is an engine on a fake machine.
type world struct {
	t *testing.T
	*fake
	engine *Engine
}

func newWorld(t *testing.T) *world {
	t.Helper()
	f := newFake()
	return &world{t: t, fake: f, engine: engineOf(t, f.api())}
}

func engineOf(t *testing.T, host api.Host) *Engine {
	t.Helper()
	engine, err := New(Options{
		Host: host, Backend: bySerial{}, KubeletDir: kubeletDir, Driver: driver,
		Wait: 50 * time.Millisecond, PollInterval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wants(err, want error) {
	w.t.Helper()
	if !errors.Is(err, want) {
		w.t.Errorf("%v; want %v", err, want)
	}
}

func stageOf(id, path string) node.StageRequest {
	return node.StageRequest{VolumeID: id, StagingPath: path, Capability: backend.Capability{Mode: backend.SingleNodeWriter}}
}

func publishOf(id, staging, target string) node.PublishRequest {
	return node.PublishRequest{VolumeID: id, StagingPath: staging, TargetPath: target,
		Capability: backend.Capability{Mode: backend.SingleNodeWriter}}
}

func (w *world) stage(id, path string) error { return w.engine.Stage(w.t.Context(), stageOf(id, path)) }
func (w *world) publish(id, staging, target string) error {
	return w.engine.Publish(w.t.Context(), publishOf(id, staging, target))
}

// The whole way of a volume on a Windows node, each call twice.
func TestEngine_theWholeWayOfAVolume(t *testing.T) {
	w := newWorld(t)
	disk := w.add(volA, 64*mebibyte)
	w.add(volB, 64*mebibyte)
	for range 2 {
		w.must(w.stage(volA, stagingA))
	}
	for range 2 {
		w.must(w.publish(volA, stagingA, targetA))
	}
	stats, err := w.engine.Stats(t.Context(), volA, targetA, "")
	if diff := cmp.Diff(node.Stats{
		Bytes: node.Usage{Total: 64 * mebibyte, Used: 5, Available: 64*mebibyte - 5},
	}, stats); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	disk.Size = 96 * mebibyte
	for range 2 {
		size, err := w.engine.Expand(t.Context(), node.ExpandRequest{
			VolumeID: volA, VolumePath: targetA, Range: backend.SizeRange{Required: 96 * mebibyte},
		})
		if err != nil || size != 96*mebibyte || disk.fsSize != size {
			t.Errorf("%d, %v; the filesystem has %d", size, err, disk.fsSize)
		}
	}
	for range 2 {
		w.must(w.engine.Unpublish(t.Context(), volA, targetA))
	}
	for range 2 {
		w.must(w.engine.Unstage(t.Context(), volA, stagingA))
	}
	if disk.Online || w.tree[stagingA] != nil || w.tree[targetA] != nil || disk.formats != 1 {
		t.Errorf("left: %+v, %v", disk, w.tree)
	}
	w.must(w.stage(volA, stagingA)) // the disk is partitioned and offline by now
	if disk.formats != 1 {
		t.Errorf("formatted %d times", disk.formats)
	}
	w.must(w.engine.Unstage(t.Context(), volA, stagingA))
	w.detach(disk)
	w.must(w.engine.Unstage(t.Context(), volA, stagingA))
	if other := w.disks[2]; other.content != "" || other.Online {
		t.Errorf("the other volume's disk was touched: %+v", other)
	}
}

// The kubelet spells paths with slashes, or without the drive.
func TestEngine_takesPathsAsTheKubeletSpellsThem(t *testing.T) {
	w := newWorld(t)
	w.tree[`c:\var\lib\kubelet`] = &entry{}
	w.add(volA, mebibyte)
	w.must(w.stage(volA, strings.ReplaceAll(stagingA[2:], `\`, "/")))
	w.must(w.publish(volA, stagingA, targetA[2:]))
	if w.tree[stagingA].volume == "" || w.tree[targetA].link != stagingA {
		t.Errorf("%+v", w.tree)
	}
}

func TestEngine_refusesWhatWindowsHasNot(t *testing.T) {
	w := newWorld(t)
	w.add(volA, mebibyte)
	for what, c := range map[string]struct {
		capability backend.Capability
		want       error
	}{
		"raw block":   {backend.Capability{Mode: backend.SingleNodeWriter, Block: true}, backend.ErrInvalid},
		"ext4":        {backend.Capability{Mode: backend.SingleNodeWriter, FSType: "ext4"}, backend.ErrInvalid},
		"mount flags": {backend.Capability{Mode: backend.SingleNodeWriter, MountFlags: []string{"noatime"}}, backend.ErrInvalid},
		"mount group": {backend.Capability{Mode: backend.SingleNodeWriter, MountGroup: "1000"}, backend.ErrInvalid},
		"a reader":    {backend.Capability{Mode: backend.SingleNodeReaderOnly}, backend.ErrPrecondition},
	} {
		r := stageOf(volA, stagingA)
		r.Capability = c.capability
		if err := w.engine.Stage(t.Context(), r); !errors.Is(err, c.want) {
			t.Errorf("stage %s: %v; want %v", what, err, c.want)
		}
		p := publishOf(volA, stagingA, targetA)
		p.Capability = c.capability
		if err := w.engine.Publish(t.Context(), p); !errors.Is(err, c.want) {
			t.Errorf("publish %s: %v; want %v", what, err, c.want)
		}
	}
	for _, name := range []string{"ntfs", "NTFS", ""} {
		r := stageOf(volA, stagingA)
		r.Capability.FSType = name
		w.must(w.engine.Stage(t.Context(), r))
	}
	p := publishOf(volA, stagingA, targetA)
	p.ReadOnly = true
	w.wants(w.engine.Publish(t.Context(), p), backend.ErrPrecondition)
	p = publishOf(volA, stagingA, targetA)
	p.VolumeContext = map[string]string{"csi.storage.k8s.io/ephemeral": "true"}
	w.wants(w.engine.Publish(t.Context(), p), backend.ErrInvalid)
}

func TestEngine_refusesPathsOutsideTheKubeletsDirectory(t *testing.T) {
	w := newWorld(t)
	w.add(volA, mebibyte)
	for _, path := range []string{
		"", `C:\windows\x`, `C:\var\lib\kubelet-evil\x`, kubeletDir, `x\y`, kubeletDir + `\..\x`, kubeletDir + `\a:stream`,
		kubeletDir + `\con`, `\\server\share\x`, `\\?\` + kubeletDir + `\x`, kubeletDir + "\\a\x00", kubeletDir + `\a.`,
	} {
		w.wants(w.stage(volA, path), backend.ErrInvalid)
		w.wants(w.engine.Unstage(t.Context(), volA, path), backend.ErrInvalid)
		w.wants(w.engine.Unpublish(t.Context(), volA, path), backend.ErrInvalid)
		w.wants(w.publish(volA, stagingA, path), backend.ErrInvalid)
	}
	w.wants(w.publish(volA, stagingA, stagingA), backend.ErrInvalid)
	w.wants(w.publish(volA, stagingA, strings.ToUpper(stagingA)+`\x`), backend.ErrInvalid)
	w.wants(w.publish(volA, stagingA, parent(stagingA)), backend.ErrInvalid)
	w.wants(w.publish(volA, "", targetA), backend.ErrPrecondition)
	w.wants(w.stage("", stagingA), backend.ErrInvalid)
	w.wants(w.stage("pvc-1", stagingA), backend.ErrNotFound)
}

func TestStage_asksWindowsToLookForTheDisk(t *testing.T) {
	w := newWorld(t)
	w.appear = []*fakeDisk{{Disk: api.Disk{SerialNumber: volA, Size: mebibyte}}}
	w.must(w.stage(volA, stagingA))
	if w.rescans != 1 {
		t.Errorf("%d rescans", w.rescans)
	}
	w.wants(w.stage(volB, stagingB), backend.ErrUnavailable)
	if w.rescans != 2 {
		t.Errorf("%d rescans", w.rescans)
	}
}

// A disk that is not blank is neither partitioned nor formatted nor mounted.
// A disk without a volume is among it.
func TestStage_changesNoDiskWithData(t *testing.T) {
	for what, change := range map[string]func(*fakeDisk){
		"something without partitions": func(d *fakeDisk) { d.content = "random bytes" },
		"no data partition":            func(d *fakeDisk) { d.content = "no data volume" },
		"another filesystem": func(d *fakeDisk) {
			d.content, d.volume, d.fs = "partitioned", `\\?\Volume{00000000-0000-0000-0000-000000000001}\`, "FAT32"
		},
	} {
		w := newWorld(t)
		disk := w.add(volA, mebibyte)
		change(disk)
		before := *disk
		if err := w.stage(volA, stagingA); !errors.Is(err, backend.ErrPrecondition) {
			t.Errorf("%s: %v", what, err)
		}
		if disk.content != before.content || disk.fs != before.fs || disk.formats != 0 {
			t.Errorf("%s: %+v became %+v", what, before, *disk)
		}
	}
}

func TestStage_refusesTwoDisksOfOneVolumeAndOneThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	disk := w.add(volA, mebibyte)
	disk.Problem = errors.New("ERROR_IO_DEVICE (1117)")
	w.wants(w.stage(volA, stagingA), backend.ErrUnavailable)
	disk.Problem = nil
	w.add(volA, mebibyte)
	w.wants(w.stage(volA, stagingA), backend.ErrPrecondition)
}

// The disk of a staged volume that does not answer yet is not reported as the disk of
// another volume, which the administrator would have to unmount.
func TestEngine_waitsForADiskWithoutAnIdentity(t *testing.T) {
	w := newWorld(t)
	disk := w.add(volA, 64*mebibyte)
	w.must(w.stage(volA, stagingA))
	disk.SerialNumber, disk.Problem = "", errors.New("it did not answer within 5s")
	for call, err := range map[string]error{
		"Stage": w.stage(volA, stagingA), "Publish": w.publish(volA, stagingA, targetA), "Unstage": w.engine.Unstage(t.Context(), volA, stagingA),
	} {
		w.wants(err, backend.ErrUnavailable)
		if err != nil && strings.Contains(err.Error(), "by hand") {
			t.Errorf("%s: %v", call, err)
		}
	}
	disk.SerialNumber, disk.Problem = volA, nil
	w.must(w.engine.Unstage(t.Context(), volA, stagingA))
}

func TestStage_refusesAFolderOfAnotherVolume(t *testing.T) {
	w := newWorld(t)
	w.add(volA, mebibyte)
	w.add(volB, mebibyte)
	w.must(w.stage(volB, stagingA))
	w.wants(w.stage(volA, stagingA), backend.ErrPrecondition)
	w.wants(w.engine.Unstage(t.Context(), volA, stagingA), backend.ErrPrecondition)
	w.wants(w.publish(volA, stagingA, targetA), backend.ErrPrecondition)
	if w.tree[stagingA].volume != w.disks[2].volume {
		t.Error("the other volume was unmounted")
	}
}

func TestPublish_findsItsWay(t *testing.T) {
	w := newWorld(t)
	w.add(volA, mebibyte)
	w.add(volB, mebibyte)
	w.must(w.stage(volA, stagingA))
	w.must(w.stage(volB, stagingB))
	w.must(w.Mkdir(t.Context(), targetA))
	w.must(w.publish(volA, stagingA, targetA)) // an empty directory is in the way
	w.tree[targetA2] = &entry{link: kubeletDir + `\gone`}
	w.must(w.publish(volA, stagingA, targetA2)) // a link to nowhere is
	w.wants(w.publish(volB, stagingB, targetA2), backend.ErrPrecondition)
	files := kubeletDir + `\pods\3\volumes\kubernetes.io~csi\a\mount`
	w.must(w.Mkdir(t.Context(), files+`\precious`))
	w.wants(w.publish(volA, stagingA, files), backend.ErrPrecondition)
	w.wants(w.engine.Unpublish(t.Context(), volA, files), backend.ErrPrecondition)
	w.wants(w.engine.Unpublish(t.Context(), volB, targetA), backend.ErrPrecondition)
	if w.tree[files+`\precious`] == nil || w.tree[targetA].link != stagingA {
		t.Error("something was removed that is not the volume's")
	}
	w.wants(w.publish(volA, stagingB, files+"2"), backend.ErrPrecondition)
}

func TestPublish_singleWriterHasOneTarget(t *testing.T) {
	w := newWorld(t)
	w.add(volA, mebibyte)
	w.must(w.stage(volA, stagingA))
	once := func(target string) error {
		r := publishOf(volA, stagingA, target)
		r.Capability.Mode = backend.SingleNodeSingleWriter
		return w.engine.Publish(t.Context(), r)
	}
	w.must(once(targetA))
	w.must(once(targetA))
	w.wants(once(targetA2), backend.ErrPrecondition)
	w.must(w.engine.Unpublish(t.Context(), volA, targetA))
	w.must(once(targetA2))
}

func TestUnstage_leavesFilesUnderAFolderThatIsNotMounted(t *testing.T) {
	w := newWorld(t)
	disk := w.add(volA, mebibyte)
	w.must(w.stage(volA, stagingA))
	w.must(w.fakeUnmount(stagingA))
	w.must(w.Mkdir(t.Context(), stagingA+`\file`))
	w.must(w.engine.Unstage(t.Context(), volA, stagingA))
	if w.tree[stagingA+`\file`] == nil || disk.Online {
		t.Error("files went, or the disk stayed online")
	}
}

func (w *world) fakeUnmount(path string) error {
	return fakeVolumes{w.fake}.Unmount(w.t.Context(), w.tree[path].volume, path)
}

// A disk whose number is not known is not a disk that is gone: the volume stays
// staged at its other path, and online.
func TestUnstage_keepsTheDiskOnlineAfterItsNumberWasContested(t *testing.T) {
	w := newWorld(t)
	disk := w.add(volA, gibibyte)
	w.must(w.stage(volA, stagingA))
	w.must(w.stage(volA, stagingB))
	disk.contested = true
	w.wants(w.engine.Unstage(t.Context(), volA, stagingB), backend.ErrUnavailable)
	disk.contested = false
	w.must(w.engine.Unstage(t.Context(), volA, stagingB))
	if !disk.Online {
		t.Error("the disk was taken offline while the volume is staged at another path")
	}
	w.must(w.engine.Unstage(t.Context(), volA, stagingA))
	if disk.Online {
		t.Error("the disk stayed online")
	}
}

func TestUnstage_removesTheFolderOfADiskThatIsGone(t *testing.T) {
	w := newWorld(t)
	disk := w.add(volA, mebibyte)
	w.must(w.stage(volA, stagingA))
	w.must(w.publish(volA, stagingA, targetA))
	w.detach(disk)
	problems, err := w.engine.VolumeHealth(t.Context(), volA, targetA, stagingA)
	if err != nil || len(problems) != 1 || problems[0].Reason != node.ReasonDeviceMissing {
		t.Errorf("%+v, %v", problems, err)
	}
	w.must(w.engine.Unpublish(t.Context(), volA, targetA))
	w.must(w.engine.Unstage(t.Context(), volA, stagingA))
	if w.tree[stagingA] != nil || w.tree[targetA] != nil {
		t.Errorf("%+v", w.tree)
	}
}

func TestExpandAndStats_knowWhereTheVolumeIs(t *testing.T) {
	w := newWorld(t)
	w.add(volA, mebibyte)
	w.add(volB, mebibyte)
	w.must(w.stage(volA, stagingA))
	for what, c := range map[string]struct {
		id, path string
		want     error
	}{
		"another volume": {volB, stagingA, backend.ErrNotFound},
		"no volume":      {"vol-none", stagingA, backend.ErrNotFound},
		"another path":   {volA, stagingB, backend.ErrNotFound},
		"no ID":          {"", stagingA, backend.ErrInvalid},
		"no path":        {volA, "", backend.ErrInvalid},
	} {
		if _, err := w.engine.Stats(t.Context(), c.id, c.path, ""); !errors.Is(err, c.want) {
			t.Errorf("stats, %s: %v", what, err)
		}
		if _, err := w.engine.Expand(t.Context(), node.ExpandRequest{VolumeID: c.id, VolumePath: c.path}); !errors.Is(err, c.want) {
			t.Errorf("expand, %s: %v", what, err)
		}
	}
	for _, r := range []backend.SizeRange{{Required: 2 * mebibyte}, {Limit: mebibyte / 2}} {
		_, err := w.engine.Expand(t.Context(), node.ExpandRequest{VolumeID: volA, VolumePath: stagingA, Range: r})
		w.wants(err, backend.ErrOutOfRange)
	}
	_, err := w.engine.Expand(t.Context(), node.ExpandRequest{VolumeID: volA, VolumePath: stagingA, Range: backend.SizeRange{Required: -1}})
	w.wants(err, backend.ErrInvalid)
}

// A disk that is larger than what is on it, as after a restore, is filled;
// the driver whose check was the wrong way round did this only when there was nothing
// to gain.
func TestStage_growsToTheDisk(t *testing.T) {
	w := newWorld(t)
	disk := w.add(volA, 64*mebibyte)
	w.must(w.stage(volA, stagingA))
	w.must(w.engine.Unstage(t.Context(), volA, stagingA))
	disk.Size, disk.known = 96*mebibyte, 96*mebibyte
	w.must(w.stage(volA, stagingA))
	if disk.fsSize != 96*mebibyte {
		t.Errorf("the filesystem has %d bytes", disk.fsSize)
	}
}

func TestHealth_reportsWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	disk := w.add(volA, mebibyte)
	reasons := func() string {
		t.Helper()
		problems, err := w.engine.VolumeHealth(t.Context(), volA, "", stagingA)
		w.must(err)
		var all []string
		for _, p := range problems {
			all = append(all, p.Reason)
		}
		return strings.Join(all, ",")
	}
	if got := reasons(); got != "" {
		t.Errorf("a disk that is not staged has %s", got)
	}
	w.must(w.stage(volA, stagingA))
	if got := reasons(); got != "" {
		t.Errorf("a healthy volume has %s", got)
	}
	disk.ReadOnly = true
	if got := reasons(); got != ReasonDiskReadOnly {
		t.Error(got)
	}
	disk.ReadOnly, disk.Online = false, false
	if got := reasons(); !strings.Contains(got, ReasonDiskOffline) {
		t.Error(got)
	}
	_, err := w.engine.VolumeHealth(t.Context(), volB, "", stagingA)
	w.wants(err, backend.ErrNotFound)
}

// Without csi-proxy the driver stays, says so, and is ready once the proxy is.
func TestProbe_saysWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	w.must(w.engine.Probe(t.Context()))
	w.away = fmt.Errorf(`%w: \\.\pipe\csi-proxy-v1: ERROR_FILE_NOT_FOUND (2)`, backend.ErrUnavailable)
	if err := w.engine.Probe(t.Context()); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "csi-proxy-v1") {
		t.Error(err)
	}
	w.wants(w.stage(volA, stagingA), backend.ErrUnavailable)
	w.wants(w.engine.Unpublish(t.Context(), volA, targetA), backend.ErrUnavailable)
	w.away = nil
	w.must(w.engine.Probe(t.Context()))
	delete(w.tree, kubeletDir)
	w.wants(w.engine.Probe(t.Context()), backend.ErrPrecondition)
}
