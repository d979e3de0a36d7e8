package host

import (
	"fmt"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// offer stores the objects of a built-in driver that a user has not given.
func (h *Host) offer(builtin Builtin) error {
	if err := h.offerDriver(builtin); err != nil {
		return err
	}
	return h.store.Update(func(tx *store.Tx) error {
		if class := builtin.Class; class != nil {
			if err := offerClass(tx, "storageclasses", class.DeepCopy(), manifest.DefaultClassAnnotation, isDefaultClass); err != nil {
				return err
			}
		}
		class := builtin.SnapshotClass
		if class == nil {
			return nil
		}
		return offerClass(tx, "volumesnapshotclasses", class.DeepCopy(), manifest.DefaultSnapshotClassAnnotation,
			func(other store.Object) bool { return isDefaultSnapshotClass(other, class.Driver) })
	})
}

func isDefaultClass(object store.Object) bool {
	class, ok := object.(*storagev1.StorageClass)
	return ok && manifest.IsDefault(class)
}

func isDefaultSnapshotClass(object store.Object, driver string) bool {
	class, ok := object.(*snapshotv1.VolumeSnapshotClass)
	return ok && class.Driver == driver && class.Annotations[manifest.DefaultSnapshotClassAnnotation] == "true"
}

// offerClass stores a class once in the life of a store, unless there is one of its
// name. It becomes the default one, unless another one is. What a user does with it
// afterwards stands.
func offerClass(
	tx *store.Tx, resource string, class store.Object, annotation string, isDefault func(store.Object) bool,
) error {
	kind, _ := store.KindOf(resource)
	offer := resource + "/" + class.GetName()
	if tx.WasOffered(offer) {
		return nil
	}
	existing, err := tx.Objects(kind).All()
	if err != nil {
		return err
	}
	hasDefault := false
	for _, other := range existing {
		if other.GetName() == class.GetName() {
			return tx.SetOffered(offer)
		}
		hasDefault = hasDefault || isDefault(other)
	}
	manifest.SetDefaults(class)
	initialise(kind, class, metav1.NewTime(time.Now().Truncate(time.Second)))
	owned := []string{`"f:provisioner":{}`} // claim.IsUntouched
	if !hasDefault {
		class.SetAnnotations(map[string]string{annotation: "true"})
		owned = append(owned, annotated(annotation))
	}
	class.SetManagedFields([]metav1.ManagedFieldsEntry{offered(kind, owned)})
	if err := tx.Objects(kind).Put(class.GetName(), class); err != nil {
		return err
	}
	return tx.SetOffered(offer)
}

// offered says that fields are the host's and not a user's.
func offered(kind store.Kind, fields []string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: claim.OfferManager, Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: kind.GroupVersion().String(), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1("{" + strings.Join(fields, ",") + "}"),
	}
}

// annotated is an annotation as a field of offered.
func annotated(name string) string {
	return fmt.Sprintf(`"f:metadata":{"f:annotations":{%q:{}}}`, "f:"+name)
}

// keepOffered adds the host's entry to the owners of a class that it made the default one,
// unless the user now says whether it is.
func keepOffered(
	kind store.Kind, stored, given store.Object, fields []metav1.ManagedFieldsEntry,
) []metav1.ManagedFieldsEntry {
	if !claim.IsOffered(stored) {
		return fields
	}
	annotation := manifest.DefaultClassAnnotation
	if kind.Resource == "volumesnapshotclasses" {
		annotation = manifest.DefaultSnapshotClassAnnotation
	}
	if _, says := given.GetAnnotations()[annotation]; says {
		return fields
	}
	return append(fields, offered(kind, []string{annotated(annotation)}))
}

// offerDriver stores the built-in driver's CSIDriver object if the user gave none, as
// if it was applied. One that an older program stored without being made so is
// completed.
func (h *Host) offerDriver(builtin Builtin) error {
	if builtin.Object == nil {
		return nil
	}
	return h.store.Update(func(tx *store.Tx) error {
		known, err := tx.Drivers().Get(builtin.Name)
		if err != nil || known != nil && known.UID != "" {
			return err
		}
		if known == nil {
			known = builtin.Object.DeepCopy()
		}
		kind, _ := store.KindOf("csidrivers")
		manifest.SetDefaults(known)
		initialise(kind, known, metav1.NewTime(time.Now().Truncate(time.Second)))
		return tx.Drivers().Put(builtin.Name, known)
	})
}
