package host

import (
	"errors"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func offering() Builtin {
	return Builtin{
		Name:          "b.example",
		Class:         &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "builtin"}, Provisioner: "b.example"},
		SnapshotClass: &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "builtin"}, Driver: "b.example"},
	}
}

func mustOffer(t *testing.T, h *Host) {
	t.Helper()
	if err := h.offer(offering()); err != nil {
		t.Fatal(err)
	}
}

// classOfNew is the class that a new claim without one gets.
func classOfNew(t *testing.T, h *Host, name string) string {
	t.Helper()
	mustApply(t, h, changed(t, changed(t, aClaim, "storageClassName: c, ", ""), "{name: data,", "{name: "+name+","))
	if class := stored(t, h, claims, "default/"+name).Spec.StorageClassName; class != nil {
		return *class
	}
	return ""
}

func TestOffer_isTheDefaultOfAnEmptyStore(t *testing.T) {
	h := newApplier(t)
	mustOffer(t, h)
	if got := classOfNew(t, h, "one"); got != "builtin" {
		t.Errorf("the claim has the class %q", got)
	}
	class := stored(t, h, (*store.Tx).SnapshotClasses, "builtin")
	if class == nil || class.Annotations[manifest.DefaultSnapshotClassAnnotation] != "true" || class.UID == "" {
		t.Errorf("the snapshot class is %+v", class)
	}
}

// A user's default class wins, also an older one, and one of the same second.
func TestOffer_givesWayToTheUsersDefault(t *testing.T) {
	for _, run := range []bool{false, true} {
		h := newApplier(t)
		mustApply(t, h, aClass)
		mustOffer(t, h)
		mustApply(t, h, changed(t, aClass, "{name: c}", "{name: c"+isDefault))
		err := h.store.View(func(tx *store.Tx) error {
			s := newState(tx)
			s.continuous = !run
			if names := s.defaultClasses(); len(names) != 1 || names[0] != "c" {
				t.Errorf("run %v: the default classes are %v", run, names)
			}
			return s.err
		})
		if err != nil {
			t.Error(err)
		}
		if got := classOfNew(t, h, "one"); got != "c" {
			t.Errorf("the claim has the class %q", got)
		}
	}
}

func TestOffer_isNotTheDefaultNextToOne(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, changed(t, aClass, "{name: c}", "{name: c"+isDefault))
	mustOffer(t, h)
	class := stored(t, h, (*store.Tx).Classes, "builtin")
	if class == nil || manifest.IsDefault(class) || claim.IsOffered(class) {
		t.Errorf("the class is %+v", class)
	}
}

func TestOffer_leavesAClassOfThatNameAlone(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, changed(t, aClass, "{name: c}", "{name: builtin}"))
	mustOffer(t, h)
	if class := stored(t, h, (*store.Tx).Classes, "builtin"); manifest.IsDefault(class) || class.Provisioner != "d.example" {
		t.Errorf("the class is %+v", class)
	}
}

func TestOffer_aDeletedClassStaysDeleted(t *testing.T) {
	h := newApplier(t)
	mustOffer(t, h)
	err := h.store.Update(func(tx *store.Tx) error {
		return errors.Join(tx.Classes().Delete("builtin"), tx.SnapshotClasses().Delete("builtin"))
	})
	if err != nil {
		t.Fatal(err)
	}
	mustOffer(t, h)
	if stored(t, h, (*store.Tx).Classes, "builtin") != nil || stored(t, h, (*store.Tx).SnapshotClasses, "builtin") != nil {
		t.Error("the classes are there again")
	}
}

func TestOffer_aChangedClassStaysChanged(t *testing.T) {
	h := newApplier(t)
	mustOffer(t, h)
	same := changed(t, changed(t, aClass, "{name: c}", "{name: builtin}"), "d.example\nparameters: {a: b}", "b.example")
	mustApply(t, h, same)
	if class := stored(t, h, (*store.Tx).Classes, "builtin"); !manifest.IsDefault(class) || !claim.IsOffered(class) {
		t.Errorf("a manifest that says nothing of it changed the default: %+v", class)
	}
	if result := mustApply(t, h, same); result.Applied[0].Action != api.Unchanged {
		t.Errorf("again it is %s", result.Applied[0].Action)
	}
	no := strings.Replace(isDefault, `"true"`, `"false"`, 1)
	mustApply(t, h, changed(t, same, "{name: builtin}", "{name: builtin"+no))
	mustOffer(t, h)
	if class := stored(t, h, (*store.Tx).Classes, "builtin"); manifest.IsDefault(class) || claim.IsOffered(class) {
		t.Errorf("the class is %+v", class)
	}
	mustApply(t, h, changed(t, same, "{name: builtin}", "{name: builtin"+isDefault))
	if class := stored(t, h, (*store.Tx).Classes, "builtin"); !manifest.IsDefault(class) || claim.IsOffered(class) {
		t.Errorf("the class that the user made the default one is %+v", class)
	}
}

// A manifest with a class of the offered name is the user's own: it can have any fields, once.
func TestOffer_isReplacedByAClassOfTheUser(t *testing.T) {
	h := newApplier(t)
	mustOffer(t, h)
	own := changed(t, aClass, "{name: c}", "{name: builtin}")
	mustApply(t, h, own)
	class := stored(t, h, (*store.Tx).Classes, "builtin")
	if class.Provisioner != "d.example" || class.Parameters["a"] != "b" || !manifest.IsDefault(class) || !claim.IsOffered(class) {
		t.Errorf("the class is %+v", class)
	}
	if result := mustApply(t, h, own); result.Applied[0].Action != api.Unchanged {
		t.Errorf("again it is %s", result.Applied[0].Action)
	}
	if _, err := h.try(changed(t, own, "{a: b}", "{a: c}")); err == nil || !strings.Contains(err.Error(), "parameters.a: cannot be changed") {
		t.Errorf("the user's class changed again: %v", err)
	}
}
