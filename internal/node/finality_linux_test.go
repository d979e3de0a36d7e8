package node

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// After a final error the kubelet does not repeat the call, so the volume must be
// removed; if it is not, the error must be one after which the kubelet unpublishes.

func TestInline_whatCouldNotBeUndoneIsUncertain(t *testing.T) {
	f := newFixture(t, withFailpoints(t, "node/inline/made=error;node/undo/closed=error"))
	f.cleanUpInline()
	f.wantError(f.engine.Publish(t.Context(), f.inlineRequest(filesystem("ext4"))), backend.ErrUnavailable)
	f.must(f.unpublishInline())
	f.wantNothing()
}

func TestInline_aRepeatThatFailsFinallyRemovesTheVolumeOfTheFirst(t *testing.T) {
	f := newFixture(t, withFailpoints(t, "node/inline/made=error;node/undo/closed=error"))
	request := f.inlineRequest(filesystem("ext4"))
	f.wantError(f.engine.Publish(t.Context(), request), backend.ErrUnavailable)
	parent := filepath.Dir(request.TargetPath)
	f.must(os.Rename(parent, parent+".moved"))
	if err := f.engine.Publish(t.Context(), request); err == nil {
		t.Fatal("published without a directory")
	}
	f.wantNothing()
}

func TestBlock_aStageThatFailsLeavesNoDevice(t *testing.T) {
	f := newFixture(t, withFailpoints(t, "node/stage/ready=error"))
	f.backend.add(t, "raw", 16<<20)
	if err := f.stage("raw", block()); err == nil {
		t.Fatal("the failpoint did not stop the stage")
	}
	devices, err := f.backend.Devices(t.Context(), "raw")
	if err != nil || len(devices) != 0 {
		t.Fatalf("devices %+v, %v; want none", devices, err)
	}
}

func TestBlock_stagedAgainWithOtherAccessMakesNoSecondDevice(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "raw", 16<<20)
	f.cleanUp("raw")
	f.must(f.stage("raw", block()))
	reader := block()
	reader.Mode = backend.SingleNodeReaderOnly
	f.must(f.stage("raw", reader))
	devices, err := f.backend.Devices(t.Context(), "raw")
	if err != nil || len(devices) != 1 || !devices[0].ReadOnly {
		t.Fatalf("devices %+v, %v; want one, read-only", devices, err)
	}
	f.must(f.stage("raw", block()))
}

func TestPublish_refusesAnotherFilesystemThanIsStaged(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "data", sizes["ext4"])
	f.cleanUp("data", "pod")
	f.must(f.stage("data", filesystem("ext4")))
	f.wantError(f.publish("data", "pod", filesystem("xfs"), false), backend.ErrExists)
	if _, err := os.Lstat(f.target("data", "pod")); !os.IsNotExist(err) {
		t.Fatalf("the target is left: %v", err)
	}
}

func TestStage_filesystemWithAnUnknownFeatureIsNotAWrongRequest(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "data", sizes["ext4"])
	// A file name encoding that no kernel knows.
	f.run("mkfs.ext4", "-q", "-F", "-O", "casefold,^metadata_csum", f.backend.path("data"))
	file, err := os.OpenFile(f.backend.path("data"), os.O_RDWR, 0)
	f.must(err)
	_, err = unix.Pwrite(int(file.Fd()), []byte{0xff, 0x7f}, 1024+0x27c) // s_encoding (ext4_super_block)
	f.must(err)
	f.must(file.Close())
	f.wantError(f.stage("data", filesystem("ext4")), backend.ErrPrecondition)
}
