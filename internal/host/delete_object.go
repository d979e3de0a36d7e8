package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

// DeleteObject deletes one object. An object that has a volume or is in use is marked
// and deleted when the controllers have finished; the answer says why it is not
// complete. Other objects are deleted at once. See api.ErrNotFound and the errors next
// to it.
func (h *Host) DeleteObject(_ context.Context, kind store.Kind, key string, o api.DeleteOptions) (api.Deleted, error) {
	d := deleter{kind: kind, key: key, options: o, result: api.Deleted{Kind: kind.Kind, Key: key}}
	var refused error
	err := h.store.Update(func(tx *store.Tx) error {
		d.tx = tx
		refused = d.delete()
		return refused
	})
	if refused != nil {
		return api.Deleted{}, refused
	}
	return d.result, err
}

// deleter is one DeleteObject within its transaction.
type deleter struct {
	tx      *store.Tx
	kind    store.Kind
	key     string
	options api.DeleteOptions
	result  api.Deleted
}

func (d *deleter) name() string { return fmt.Sprintf("%s %q", d.kind.Kind, d.key) }

func (d *deleter) delete() error {
	object, err := d.tx.Objects(d.kind).Get(d.key)
	if err != nil && !errors.Is(err, store.ErrSealed) { // its data is not needed
		return err
	}
	if err := d.mayDelete(object); err != nil {
		return err
	}
	if d.result.Waits, err = d.users(object); err != nil {
		return err
	}
	if d.kind.Kind != "Pod" && len(object.GetFinalizers()) == 0 {
		d.result.Gone = true
		return d.tx.Objects(d.kind).Delete(d.key)
	}
	if object.GetDeletionTimestamp() == nil {
		volumes.ProtectDeleted(object)
		mark(object)
	} else if !d.options.Abandon {
		return nil // the deletion continues
	}
	if d.options.Abandon {
		stays, err := volumes.Abandon(d.tx, object)
		if err != nil {
			return err
		}
		d.result.Waits = append(d.result.Waits, stays...)
	}
	return d.tx.Objects(d.kind).Put(d.key, object)
}

// mark begins the deletion of an object. It raises the generation, as the API server
// does.
func mark(object store.Object) {
	now, grace := metav1.NewTime(time.Now().Truncate(time.Second)), int64(0)
	if pod, ok := object.(*corev1.Pod); ok {
		if pod.Spec.TerminationGracePeriodSeconds != nil {
			grace = *pod.Spec.TerminationGracePeriodSeconds
		}
		now = metav1.NewTime(now.Add(time.Duration(grace) * time.Second)) // when it is over at the latest
	}
	object.SetDeletionTimestamp(&now)
	object.SetDeletionGracePeriodSeconds(&grace)
	object.SetGeneration(object.GetGeneration() + 1)
}

// mayDelete refuses an object that does not exist, that differs from the requested
// one, or that the user may not delete.
func (d *deleter) mayDelete(object store.Object) error {
	failed := func(kind error, format string, arguments ...any) error {
		return refuse(kind, fmt.Errorf("%s: %w", d.name(), fmt.Errorf(format, arguments...)))
	}
	switch {
	case d.kind.Kind == "CSINode" || d.kind.Kind == "VolumeAttachment":
		return failed(api.ErrForbidden, "is written by the host and is deleted together with what it describes")
	case object == nil:
		return failed(api.ErrNotFound, "not found")
	case d.options.UID != "" && d.options.UID != string(object.GetUID()):
		return failed(api.ErrConflict, "has uid %s, not %s", object.GetUID(), d.options.UID)
	case d.options.ResourceVersion != "" && d.options.ResourceVersion != object.GetResourceVersion():
		return failed(api.ErrConflict, "has changed since it was read (resourceVersion %s, now %s)",
			d.options.ResourceVersion, object.GetResourceVersion())
	case d.options.Abandon && !volumes.CanAbandon(d.kind.Kind):
		return failed(api.ErrInvalid, "has no volume that could be abandoned")
	case d.kind.Kind == "Namespace":
		return d.mayDeleteNamespace()
	}
	return nil
}

// shownObjects is how many objects a message names.
const shownObjects = 5

// mayDeleteNamespace refuses one with objects in it: on one machine, deleting all of
// its data with one command is hardly intended.
func (d *deleter) mayDeleteNamespace() error {
	if d.key == manifest.DefaultNamespace {
		return refuse(api.ErrForbidden, fmt.Errorf("%s: cannot be deleted: objects that name no namespace are in it", d.name()))
	}
	var names []string
	for _, kind := range store.Kinds() {
		if !kind.Namespaced {
			continue
		}
		objects, err := d.tx.Objects(kind).All()
		if err != nil {
			return err
		}
		for _, object := range objects {
			if object.GetNamespace() == d.key {
				names = append(names, fmt.Sprintf("%s %q", kind.Kind, object.GetName()))
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return refuse(api.ErrConflict, fmt.Errorf("%s: is not empty: it has %s; delete these first", d.name(), some(names)))
}

// some names the first of many.
func some(names []string) string {
	if more := len(names) - shownObjects; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shownObjects], ", "), more)
	}
	return strings.Join(names, ", ")
}

// gather lists the objects of a table that mention a name and that a test picks,
// for messages.
func gather[T any](table store.Table[T], mention, what string, name func(*T) string) (string, error) {
	all, err := table.Containing(mention)
	if err != nil {
		return "", err
	}
	var names []string
	for _, object := range all {
		if found := name(object); found != "" {
			names = append(names, found)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return what + " " + some(names), nil
}

// sentences puts together what gather found.
type sentences struct {
	list []string
	errs []error
}

func (s *sentences) add(text string, err error) {
	if text != "" {
		s.list = append(s.list, text)
	}
	s.errs = append(s.errs, err)
}

func (s *sentences) result() ([]string, error) { return s.list, errors.Join(s.errs...) }
