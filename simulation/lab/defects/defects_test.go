package defects_test

import (
	"testing"

	"github.com/holdfast-csi/holdfast/simulation/lab/defects"
	"github.com/holdfast-csi/holdfast/simulation/lab/overlay"
)

// A defect that no longer fits the source would be found by no seed.
func TestDefects_fitTheSource(t *testing.T) {
	list, names := defects.All(), map[string]bool{}
	if _, err := overlay.Write(t.TempDir(), "../../..", defects.Changes(list)); err != nil {
		t.Error(err)
	}
	for _, d := range list {
		if names[d.Name] {
			t.Errorf("two defects are named %s", d.Name)
		}
		names[d.Name] = true
	}
}
