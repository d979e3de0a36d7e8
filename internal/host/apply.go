package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Admit decides about a new pod: warnings are for the user, an error refuses
// it. Both name the pod. namespace is never nil; driver returns nil for one without an object.
type Admit func(pod *corev1.Pod, namespace *corev1.Namespace, driver func(name string) *storagev1.CSIDriver) (warnings []string, err error)

// Apply makes the objects of the files, or changes them to what the files say.
// It does all of it or nothing, in one transaction, and names everything that
// is wrong at once; see api.ErrInvalid and the errors next to it. What an object
// waits for is a warning: the host brings it about when that comes.
func (h *Host) Apply(ctx context.Context, files []manifest.File, o api.ApplyOptions) (api.ApplyResult, error) {
	a, err := h.applyFiles(files, o)
	if err != nil {
		return api.ApplyResult{}, err
	}
	if o.Run && !o.DryRun {
		if err := h.awaitClaims(ctx, a); err != nil {
			return api.ApplyResult{}, err
		}
	}
	if o.Run { // the caller has decoded the files
		a.unused = nil
	}
	var warnings []string
	for _, unused := range a.unused {
		warnings = append(warnings, "not used on one machine: "+unused)
	}
	return api.ApplyResult{Applied: a.applied, Warnings: append(warnings, a.warnings...)}, nil
}

func (h *Host) applyFiles(files []manifest.File, o api.ApplyOptions) (*applier, error) {
	objects, err := manifest.Decode(files)
	if err != nil {
		return nil, refuse(api.ErrInvalid, err)
	}
	a := &applier{admit: h.options.Admit, mutate: h.options.Mutate,
		now: metav1.NewTime(time.Now().Truncate(time.Second)), unused: objects.Unused, create: o.Create}
	if o.Run {
		a.run = &forRun{node: h.nodeName(), registered: h.isRegistered, given: map[string]bool{}}
	}
	var refused error
	err = h.store.Update(func(tx *store.Tx) error {
		a.tx, a.state = tx, newState(tx)
		a.state.continuous = !o.Run
		if refused = a.apply(objects); refused != nil {
			return refused
		}
		if o.DryRun {
			return errDryRun
		}
		return nil
	})
	switch {
	case refused != nil:
		return nil, refused // without the store's name before it
	case err != nil && !errors.Is(err, errDryRun):
		return nil, err
	}
	return a, nil
}

// errDryRun ends a transaction whose changes must not be stored.
var errDryRun = errors.New("dry run")

// refusal is an error with one of package api's sentinels that are not in its text.
type refusal struct {
	error
	kind error
}

func (r *refusal) Is(target error) bool { return target == r.kind }
func (r *refusal) Unwrap() error        { return r.error }

func refuse(kind, err error) error { return &refusal{err, kind} }

// applier is one Apply within its transaction.
type applier struct {
	tx       *store.Tx
	state    *state
	admit    Admit
	mutate   func(*corev1.Pod, func(string) *storagev1.CSIDriver) []string
	now      metav1.Time
	applied  []api.Applied
	unused   []string // manifest.Objects.Unused
	warnings []string
	advice   []string // those of the policy, out of warnings
	create   bool     // of api.ApplyOptions
	run      *forRun  // of api.ApplyOptions.Run, nil without
}

// change is the change that apply makes to one object.
type change struct {
	manifest.Object
	action api.Action
	// wrong is why it cannot be.
	wrong error
}

func (a *applier) apply(objects *manifest.Objects) error {
	if err := a.addNamespaces(objects.All); err != nil {
		return err
	}
	changes := make([]change, len(objects.All))
	for i, given := range objects.All {
		changes[i] = change{Object: given}
	}
	inOrder := a.inOrder(changes)
	for _, c := range inOrder { // what others refer to comes first
		if err := a.put(c); err != nil {
			return err
		}
	}
	if err := a.assignDefault(inOrder); err != nil {
		return err
	}
	for _, c := range inOrder {
		if c.wrong == nil && (c.action != api.Unchanged || a.run != nil) {
			a.check(c)
		}
	}
	if a.run != nil {
		if err := a.selectNode(changes); err != nil {
			return err
		}
	}
	return a.report(changes)
}

func (a *applier) inOrder(changes []change) []*change {
	rank := map[string]int{}
	for i, kind := range store.Kinds() {
		rank[kind.Kind] = i
	}
	all := make([]*change, len(changes))
	for i := range changes {
		all[i] = &changes[i]
	}
	slices.SortStableFunc(all, func(x, y *change) int { return rank[x.Kind.Kind] - rank[y.Kind.Kind] })
	return all
}

// report lists the changes, or all faults.
func (a *applier) report(changes []change) error {
	problems := []error{a.state.err}
	for _, c := range changes {
		if c.wrong != nil {
			problems = append(problems, fmt.Errorf("%s: %w", c.Where, c.wrong))
		}
		if a.isHeld(c.Object) {
			continue
		}
		a.applied = append(a.applied, api.Applied{Kind: c.Kind.Kind, Key: c.Key, Action: c.action})
	}
	return errors.Join(problems...)
}

// put writes one object, new or changed.
func (a *applier) put(c *change) error {
	if a.isHeld(c.Object) {
		a.changePod(c.Object)
		a.prepare(c)
		return nil
	}
	table := a.tx.Objects(c.Kind)
	stored, err := table.Get(c.Key)
	if err != nil && !errors.Is(err, store.ErrSealed) { // the given object replaces one that is lost
		return err
	}
	if stored == nil {
		if a.changePod(c.Object); !a.prepare(c) {
			return nil
		}
		if pvc, ok := c.Object.Object.(*corev1.PersistentVolumeClaim); ok && pvc.Spec.VolumeName == "" {
			a.state.chooseClass(pvc) // without one, the check returns the error
		}
		return table.Put(c.Key, c.Object.Object)
	}
	if a.merge(c, stored); c.action == api.Unchanged {
		return nil
	}
	return table.Put(c.Key, c.Object.Object)
}

// merge changes a stored object to the given one; the action reports whether it
// differed.
func (a *applier) merge(c *change, stored store.Object) {
	m := merger{state: a.state, stored: stored, given: c.Object, create: a.create}
	changed, err := m.merge()
	if err != nil && a.changePod(c.Object) {
		changed, err = m.merge() // the API server applies an edit in the same way
	}
	a.warnings = append(a.warnings, m.warnings...)
	c.wrong = err
	if err != nil || !changed {
		c.Object.Object, c.action = stored, api.Unchanged
		return
	}
	c.Object.Object, c.action = m.merged, api.Configured
}

// prepare makes a new object of the given one, or refuses it.
func (a *applier) prepare(c *change) bool {
	c.action = api.Created
	if c.GetResourceVersion() != "" {
		c.wrong = refuse(api.ErrConflict, fmt.Errorf("%s: metadata.resourceVersion: is that of an object that is not there any more; leave it out to make a new one", c.Name()))
		return false
	}
	initialise(c.Kind, c.Object.Object, a.now)
	return true
}

// check inspects an object together with the others, and asks the policy about a pod.
func (a *applier) check(c *change) {
	for _, found := range a.state.check(c.Object.Object) {
		if found.waits && a.run == nil {
			a.warnings = append(a.warnings, found.err.Error()+" (it waits)")
			continue
		}
		c.wrong = errors.Join(c.wrong, refuse(api.ErrInvalid, found.err))
	}
	if a.run != nil {
		c.wrong = errors.Join(c.wrong, a.checkDrivers(c.Object.Object))
	}
	pod, ok := c.Object.Object.(*corev1.Pod)
	if !ok || c.action != api.Created || a.admit == nil {
		return
	}
	namespace := read(a.state, a.tx.Namespaces(), pod.Namespace)
	if namespace == nil {
		return // the store failed, and state.err has the error
	}
	warnings, err := a.admit(pod, namespace, a.driver)
	a.warnings, a.advice = append(a.warnings, warnings...), append(a.advice, warnings...)
	if err != nil {
		c.wrong = errors.Join(c.wrong, refuse(api.ErrForbidden, err)) // it names the pod
	}
}

func (a *applier) driver(name string) *storagev1.CSIDriver {
	return read(a.state, a.tx.Drivers(), name)
}

// changePod applies the policy's changes to a pod, and reports whether there were any.
func (a *applier) changePod(given manifest.Object) bool {
	pod, ok := given.Object.(*corev1.Pod)
	return ok && a.mutate != nil && len(a.mutate(pod, a.driver)) > 0
}

// addNamespaces makes the namespaces that are used and neither there nor given.
// No other component of one machine would, and the result lists them.
func (a *applier) addNamespaces(given []manifest.Object) error {
	seen := map[string]bool{}
	for _, object := range given {
		if object.Kind.Kind == "Namespace" {
			seen[object.Key] = true
		}
	}
	names := []string{manifest.DefaultNamespace}
	for _, object := range given {
		if object.GetNamespace() != "" {
			names = append(names, object.GetNamespace())
		}
	}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		if err := a.addNamespace(name); err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) addNamespace(name string) error {
	stored, err := a.tx.Namespaces().Get(name)
	if err != nil || stored != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	manifest.SetDefaults(namespace)
	kind, _ := store.KindOf("namespaces")
	initialise(kind, namespace, a.now)
	if name != manifest.DefaultNamespace {
		a.applied = append(a.applied, api.Applied{Kind: kind.Kind, Key: name, Action: api.Created})
	}
	return a.tx.Namespaces().Put(name, namespace)
}

// assignDefault sets the default class of claims that wait for one, when that
// has come (KEP 3333).
func (a *applier) assignDefault(changes []*change) error {
	came := slices.ContainsFunc(changes, func(c *change) bool {
		class, ok := c.Object.Object.(*storagev1.StorageClass)
		return ok && c.wrong == nil && c.action != api.Unchanged && manifest.IsDefault(class)
	})
	if !came {
		return nil
	}
	claims, err := a.tx.Claims().All()
	if err != nil {
		return err
	}
	for _, pvc := range claims {
		if pvc.Spec.StorageClassName != nil || pvc.Spec.VolumeName != "" || pvc.DeletionTimestamp != nil {
			continue
		}
		if a.state.chooseClass(pvc); pvc.Spec.StorageClassName == nil {
			continue
		}
		if err := a.tx.Claims().Put(claimKey(pvc), pvc); err != nil {
			return err
		}
	}
	return nil
}
