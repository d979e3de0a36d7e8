package pods

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// The volume manager reads the record before it unmounts the volumes of a pod
// whose object is gone.
func TestRecord_isInTheDirectoryThatTheVolumeManagerReads(t *testing.T) {
	paths := claim.Paths{Root: "/root"}
	if got, want := filepath.Join(paths.Pod("u"), runDirectory, recordFile), paths.PodRecord("u"); got != want {
		t.Errorf("the record is %s, looked for at %s", got, want)
	}
}
