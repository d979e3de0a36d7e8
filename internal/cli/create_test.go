package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
)

// creating is a host with a claim and its snapshot, which records what is applied.
func creating(t *testing.T) (h *testHost, applied *string, options *api.ApplyOptions) {
	t.Helper()
	h, applied, options = startTestHost(t), new(string), new(api.ApplyOptions)
	class, of, size := "fast", "data", resource.MustParse("3Gi")
	source := pendingClaim("data")
	source.Spec.StorageClassName = &class
	source.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	source.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	source.Labels = map[string]string{"mine": "1", "others": "2"}
	source.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "holdfast-apply",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:mine":{}}}}`)}}
	h.put(t, source, &snapshotv1.VolumeSnapshot{
		ObjectMeta: meta("snap"),
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &of}},
		Status:     &snapshotv1.VolumeSnapshotStatus{RestoreSize: &size},
	})
	h.onApply = func(files []manifest.File, given api.ApplyOptions) (api.ApplyResult, error) {
		*applied, *options = string(files[0].Data), given
		objects, err := manifest.Decode(files)
		if err != nil {
			return api.ApplyResult{}, fmt.Errorf("%w: %w", api.ErrInvalid, err)
		}
		return api.ApplyResult{Applied: []api.Applied{{Kind: objects.All[0].Kind.Kind, Key: objects.All[0].Key, Action: api.Created}}}, nil
	}
	return h, applied, options
}

func TestCreate_makesTheObjectOfItsFlags(t *testing.T) {
	h, applied, options := creating(t)
	cases := []struct {
		line string
		want []string
	}{
		{"create pvc new --size 10Gi", []string{"name: new", "storage: 10Gi", "- ReadWriteOnce"}},
		{"create pvc new --size 1Gi --class c --access-mode rwx,ReadOnlyMany --volume-mode block -l a=b",
			[]string{"storageClassName: c", "- ReadWriteMany", "- ReadOnlyMany", "volumeMode: Block", "a: b"}},
		{"create pvc new --from-pvc data", []string{"kind: PersistentVolumeClaim\n    name: data", "storage: 2Gi", "storageClassName: fast"}},
		{"create pvc new --from-snapshot snap --size 9Gi", []string{"storage: 9Gi", "kind: VolumeSnapshot\n    name: snap"}},
		{"restore new --from snap", []string{"storage: 3Gi", "storageClassName: fast", "apiGroup: snapshot.storage.k8s.io"}},
		{"restore new --from vs/snap --class other", []string{"storageClassName: other"}},
		{"create snapshot new --of pvc/data --class k", []string{"kind: VolumeSnapshot", "persistentVolumeClaimName: data", "volumeSnapshotClassName: k"}},
	}
	for _, c := range cases {
		t.Run(c.line, func(t *testing.T) {
			code, stdout, stderr := h.run(t, strings.Fields(c.line)...)
			if code != 0 || !strings.HasSuffix(stdout, "/new created\n") || !options.Create {
				t.Fatalf("exit code %d, %s%s", code, stdout, stderr)
			}
			for _, text := range c.want {
				if !strings.Contains(*applied, text) {
					t.Errorf("it lacks %q:\n%s", text, *applied)
				}
			}
		})
	}
}

func TestCreate_refusesWrongLines(t *testing.T) {
	h, _, _ := creating(t)
	cases := []struct {
		line string
		code int
		want string
	}{
		{"create volume x", 2, `unknown command "volume"`},
		{"create pvc", 2, "say the name of the claim"},
		{"create pvc x", 2, "--size SIZE is not given"},
		{"create pvc x --size much", 2, `--size "much" is not a size`},
		{"create pvc x --size -1Gi", 2, "is not a size above 0"},
		{"create pvc x --size 1Gi --access-mode RWY", 2, `--access-mode "RWY"`},
		{"create pvc x --size 1Gi --volume-mode tape", 2, "neither Filesystem nor Block"},
		{"create pvc x --from-pvc data --from-snapshot snap", 2, "not both"},
		{"create pvc x --from-pvc none", 1, `"none" not found`},
		{"create pvc x --from-pvc data --dry-run=client", 2, "--size is needed"},
		{"create pvc x --size 1Gi --dry-run=never", 2, "none of server, client and none"},
		{"create pvc x --size 1Gi -o wide", 2, "none of yaml, json and name"},
		{"create pvc x --size 1Gi --dry-run --wait", 2, "--wait cannot be used with --dry-run"},
		{"create pvc X --size 1Gi", 1, `holdfast: invalid: PersistentVolumeClaim "default/X": metadata.name`},
		{"create snapshot x", 2, "--of CLAIM is not given"},
		{"restore x", 2, "--from SNAPSHOT is not given"},
		{"restore x --from none", 1, `"none" not found`},
		{"resize pvc/data", 2, "pvc/NAME SIZE"},
		{"resize pvc/data 0", 2, "is not a size above 0"},
		{"resize pvc/none 1Gi", 1, `"none" not found`},
	}
	for _, c := range cases {
		t.Run(c.line, func(t *testing.T) {
			code, stdout, stderr := h.run(t, strings.Fields(c.line)...)
			if code != c.code || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, %s%s", code, stdout, stderr)
			}
		})
	}
}

func TestCreate_dryRunOfTheClientNeedsNoHost(t *testing.T) {
	code, stdout, stderr := run(t, "create", "pvc", "x", "--size=1Gi", "--dry-run=client", "-o", "yaml", "--root="+t.TempDir())
	if code != 0 || !strings.Contains(stdout, "storage: 1Gi") || strings.Contains(stdout, "status") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// A controller may write the claim between the two calls of resize.
func TestResize_appliesTheClaimAgainWhenItChanged(t *testing.T) {
	h, applied, options := creating(t)
	record, calls := h.onApply, 0
	h.onApply = func(files []manifest.File, given api.ApplyOptions) (api.ApplyResult, error) {
		if calls++; calls == 1 {
			return api.ApplyResult{}, errors.Join(api.ErrConflict, errors.New("it changed"))
		}
		return record(files, given)
	}
	code, stdout, stderr := h.run(t, "resize", "pvc/data", "5Gi")
	if code != 0 || calls != 2 || options.Create {
		t.Fatalf("exit code %d after %d calls, %s%s", code, calls, stdout, stderr)
	}
	for text, has := range map[string]bool{"storage: 5Gi": true, "resourceVersion:": true, "mine:": true, "others:": false, "status:": false} {
		if strings.Contains(*applied, text) != has {
			t.Errorf("%q is there: %v\n%s", text, !has, *applied)
		}
	}
}
