package host

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
)

// surroundings are the namespaces and CSIDrivers that the policy judges a run's
// pods by, as they are going to be: what is given takes the place of what is
// stored.
type surroundings struct {
	state      *state
	namespaces map[string]*corev1.Namespace
	drivers    map[string]*storagev1.CSIDriver
	// builtins are those whose objects startDrivers is going to store.
	builtins []Builtin
}

func (h *Host) surroundingsOf(known *state, objects *manifest.Objects) surroundings {
	s := surroundings{
		state: known, builtins: h.options.Builtins,
		namespaces: map[string]*corev1.Namespace{}, drivers: map[string]*storagev1.CSIDriver{},
	}
	for _, given := range objects.All {
		switch object := given.Object.(type) {
		case *corev1.Namespace:
			s.namespaces[object.Name] = object
		case *storagev1.CSIDriver:
			s.drivers[object.Name] = object
		}
	}
	return s
}

// namespace is never nil: one that nobody made says nothing.
func (s surroundings) namespace(name string) *corev1.Namespace {
	if given := s.namespaces[name]; given != nil {
		return given
	}
	if stored := read(s.state, s.state.tx.Namespaces(), name); stored != nil {
		return stored
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// driver is nil for one that has no object.
func (s surroundings) driver(name string) *storagev1.CSIDriver {
	if given := s.drivers[name]; given != nil {
		return given
	}
	if stored := read(s.state, s.state.tx.Drivers(), name); stored != nil {
		return stored
	}
	for _, builtin := range s.builtins {
		if builtin.Name == name {
			return builtin.Object
		}
	}
	return nil
}

// admit makes the pods of a run what the policy wants, and asks it about them,
// as Apply does about new ones. The error says why they must not be.
func (h *Host) admit(known *state, objects *manifest.Objects) (warnings []string, err error) {
	around := h.surroundingsOf(known, objects)
	var refused []error
	for _, given := range objects.All {
		pod, is := given.Object.(*corev1.Pod)
		if !is {
			continue
		}
		if h.options.Mutate != nil {
			h.options.Mutate(pod, around.driver)
		}
		if h.options.Admit == nil {
			continue
		}
		found, err := h.options.Admit(pod, around.namespace(pod.Namespace), around.driver)
		warnings = append(warnings, found...)
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", given.Where, err)) // it names the pod
		}
	}
	return warnings, errors.Join(refused...)
}
