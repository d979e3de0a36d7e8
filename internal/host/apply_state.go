package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// state is the store with the given objects on top of it. It reads objects on demand.
// The caller checks err before it uses a result.
type state struct {
	tx  *store.Tx
	err error
	// continuous: the host runs on, and inspects an object again when another one changes.
	continuous bool
	classes    lookup[storagev1.StorageClass]
	claims     lookup[corev1.PersistentVolumeClaim]
	volumes    lookup[corev1.PersistentVolume]
	creations  lookup[store.Provisioning]
}

// lookup reads one object from the given ones, else from the table.
type lookup[T any] struct {
	table store.Table[T]
	over  map[string]*T
	err   *error
}

func (l lookup[T]) get(key string) *T {
	if value := l.over[key]; value != nil {
		return value
	}
	value, err := l.table.Get(key)
	if err != nil {
		*l.err = errors.Join(*l.err, err)
	}
	return value
}

func newState(tx *store.Tx) *state {
	s := &state{tx: tx}
	s.classes = lookup[storagev1.StorageClass]{tx.Classes(), map[string]*storagev1.StorageClass{}, &s.err}
	s.claims = lookup[corev1.PersistentVolumeClaim]{tx.Claims(), map[string]*corev1.PersistentVolumeClaim{}, &s.err}
	s.volumes = lookup[corev1.PersistentVolume]{tx.Volumes(), nil, &s.err}
	s.creations = lookup[store.Provisioning]{tx.Provisionings(), nil, &s.err}
	return s
}

// allClasses lists the classes by name.
func (s *state) allClasses() map[string]*storagev1.StorageClass {
	stored, err := s.tx.Classes().All()
	if err != nil {
		s.err = errors.Join(s.err, err)
	}
	all := map[string]*storagev1.StorageClass{}
	for _, class := range stored {
		all[class.Name] = class
	}
	for name, class := range s.classes.over {
		all[name] = class
	}
	return all
}

func (s *state) classOf(pvc *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName == "" {
		return nil
	}
	return s.classes.get(*pvc.Spec.StorageClassName)
}

// finding is a fault that an object has together with the others.
type finding struct {
	err error
	// waits: on a cluster, the object would be accepted and wait until the
	// others change. A run does not wait.
	waits bool
}

func wrong(format string, arguments ...any) finding {
	return finding{err: fmt.Errorf(format, arguments...)}
}

func waiting(format string, arguments ...any) finding {
	return finding{err: fmt.Errorf(format, arguments...), waits: true}
}

// chooseClass sets the default class of a claim that names none. The finding is
// nil when the claim has a class, and that class exists.
func (s *state) chooseClass(pvc *corev1.PersistentVolumeClaim) *finding {
	if name := pvc.Spec.StorageClassName; name != nil {
		if *name == "" || s.classes.get(*name) != nil {
			return nil
		}
		found := waiting("%s: spec.storageClassName: StorageClass %q does not exist%s", claim.Describe(pvc),
			*name, s.listClasses())
		return &found
	}
	switch defaults := s.defaultClasses(); len(defaults) {
	case 1:
		pvc.Spec.StorageClassName = &defaults[0]
		return nil
	case 0:
		found := waiting("%s: spec.storageClassName: is missing, and no StorageClass is the default one: name one, or give one the annotation %s: \"true\"%s",
			claim.Describe(pvc), manifest.DefaultClassAnnotation, s.listClasses())
		return &found
	default:
		if s.continuous {
			pvc.Spec.StorageClassName = s.newest(defaults)
			return nil
		}
		found := wrong("%s: spec.storageClassName: is missing, and several StorageClasses are the default one (%s): name one",
			claim.Describe(pvc), strings.Join(defaults, ", "))
		return &found
	}
}

// defaultClasses are the default classes: those of the user before the one that the
// host offers.
func (s *state) defaultClasses() (names []string) {
	var defaults []*storagev1.StorageClass
	for _, class := range s.allClasses() {
		if manifest.IsDefault(class) {
			defaults = append(defaults, class)
		}
	}
	for _, class := range claim.PreferGiven(defaults) {
		names = append(names, class.Name)
	}
	slices.Sort(names)
	return names
}

// newest is the one of several default classes that a cluster takes: the one
// that was made last.
func (s *state) newest(names []string) *string {
	slices.SortFunc(names, func(a, b string) int {
		first, second := s.classes.get(a).CreationTimestamp, s.classes.get(b).CreationTimestamp
		return cmp.Or(second.Compare(first.Time), cmp.Compare(a, b))
	})
	return &names[0]
}

func (s *state) listClasses() string {
	var names []string
	for name := range s.allClasses() {
		names = append(names, name)
	}
	if len(names) == 0 {
		return " (no StorageClass exists)"
	}
	slices.Sort(names)
	return " (existing: " + strings.Join(names, ", ") + ")"
}

func claimKey(pvc *corev1.PersistentVolumeClaim) string { return store.Key(pvc.Namespace, pvc.Name) }
