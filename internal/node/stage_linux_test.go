package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

func TestStage_formatsABlankDeviceOnceAndKeepsItsFiles(t *testing.T) {
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			f := newFixture(t)
			f.backend.add(t, "vol-a", size)
			f.cleanUp("vol-a", "pod")

			f.must(f.stage("vol-a", filesystem(fsType)))
			if runs := f.runner.runs.Load(); runs != 1 {
				t.Errorf("%d programs were run for a fresh volume; want mkfs alone", runs)
			}
			if mark := f.backend.mark("vol-a"); mark != (backend.FormatMark{FSType: fsType, Done: true}) {
				t.Errorf("mark %+v", mark)
			}
			f.must(f.stage("vol-a", filesystem(fsType)))
			f.must(f.publish("vol-a", "pod", filesystem(fsType), false))
			f.must(f.publish("vol-a", "pod", filesystem(fsType), false))
			f.write(filepath.Join(f.target("vol-a", "pod"), "file"), "kept")

			f.must(f.unpublish("vol-a", "pod"))
			f.must(f.unpublish("vol-a", "pod"))
			f.must(f.unstage("vol-a"))
			f.must(f.unstage("vol-a"))
			nodetest.NoLeaks(t, f.dir)
			if _, err := os.Lstat(f.target("vol-a", "pod")); !os.IsNotExist(err) {
				t.Errorf("the target stayed: %v", err)
			}

			f.must(f.stage("vol-a", filesystem(fsType)))
			f.wantContent(filepath.Join(f.stagingDir("vol-a"), "file"), "kept")
			if runs := f.runner.runs.Load(); runs != 1 {
				t.Errorf("%d programs were run in all; want the first mkfs alone", runs)
			}
		})
	}
}
