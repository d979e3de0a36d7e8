package host

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func TestNodeDrivers_areThoseThatRegistered(t *testing.T) {
	count := func(n int32) *storagev1.VolumeNodeResources { return &storagev1.VolumeNodeResources{Count: &n} }
	before := &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: "a.example", NodeID: "old", TopologyKeys: []string{"rack"}}, {Name: "gone.example", NodeID: "n"},
	}}}
	nodes := map[string]plugins.NodeInfo{
		"c.example": {ID: "n", MaxVolumes: math.MaxInt64},
		"a.example": {ID: "new", Topology: map[string]string{"zone": "z", "region": "r"}, MaxVolumes: 7},
		"b.example": {ID: "n"},
	}
	want := []storagev1.CSINodeDriver{
		// In a cluster another node ID and other keys are refused once.
		{Name: "a.example", NodeID: "new", TopologyKeys: []string{"region", "zone"}, Allocatable: count(7)},
		{Name: "b.example", NodeID: "n"},
		{Name: "c.example", NodeID: "n", Allocatable: count(math.MaxInt32)},
	}
	if difference := cmp.Diff(want, nodeDrivers(before, nodes, false)); difference != "" {
		t.Error(difference)
	}
	want = append(want, storagev1.CSINodeDriver{Name: "gone.example", NodeID: "n"})
	kept := nodeDrivers(before, nodes, true)
	if difference := cmp.Diff(want, kept); difference != "" {
		t.Errorf("just after the start: %s", difference)
	}
	if !sameDrivers(&storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: want}}, kept) || sameDrivers(before, kept) || sameDrivers(nil, nil) {
		t.Error("an equal object is written, or a changed one is not")
	}
}

func TestConcerned_isWhatChangesADriversLimit(t *testing.T) {
	change := func(resource string, object store.Object) store.Change {
		kind, known := store.KindOf(resource)
		if !known {
			t.Fatal(resource)
		}
		return store.Change{Kind: kind, Data: encode(t, object)}
	}
	failed := func(code int32) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "d.example"},
			Status: storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{ErrorCode: &code}},
		}
	}
	for _, c := range []struct {
		change store.Change
		want   []string
	}{
		{change("volumeattachments", failed(resourceExhausted)), []string{"d.example"}},
		{change("volumeattachments", failed(13)), nil},
		{change("volumeattachments", &storagev1.VolumeAttachment{}), nil},
		{change("csidrivers", &storagev1.CSIDriver{}), []string{""}},
		{change("storageclasses", &storagev1.StorageClass{}), nil},
		{store.Change{}, []string{""}}, // changes were lost
	} {
		if got := concerned([]store.Change{c.change}); !cmp.Equal(got, c.want) {
			t.Errorf("%s %s: %q, not %q", c.change.Kind.Kind, c.change.Data, got, c.want)
		}
	}
}

func encode(t *testing.T, object any) []byte {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
