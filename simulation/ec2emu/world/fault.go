package world

import (
	"fmt"
	"slices"
)

// Fault is a fault of volumes or their attachments. Faults of calls are in package ec2emu.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// VolumeID and InstanceID restrict it; empty means any. Name is the value of
	// any tag of the volume, for one that has no ID yet.
	VolumeID   string `json:"volumeId,omitempty"`
	InstanceID string `json:"instanceId,omitempty"`
	Name       string `json:"name,omitempty"`
	// Count is how often it happens before it is removed; 0 means always.
	Count int `json:"count,omitempty"`
	// Probability is the share of the cases that it hits; 0 means all.
	Probability float64 `json:"probability,omitempty"`
	// Transition and Takes belong to a Slow fault: the kind of transition that it
	// prolongs (empty means any) and how long that takes instead.
	Transition Transition `json:"transition,omitempty"`
	Takes      Takes      `json:"takes,omitzero"`
	// ID is set by AddFault.
	ID int `json:"id"`
}

// FaultKind is one of the constants below.
type FaultKind string

// Transition is a kind of transition that ends by itself.
type Transition string

// Kinds of transitions, as in Times.
const (
	CreateTransition   Transition = "create"
	AttachTransition   Transition = "attach"
	DetachTransition   Transition = "detach"
	ModifyTransition   Transition = "modify"
	SnapshotTransition Transition = "snapshot"
)

// Kinds of faults.
const (
	// Slow: a transition takes another time.
	Slow FaultKind = "slow"
	// StuckAttaching: the attachment stays attaching until it is detached.
	StuckAttaching FaultKind = "stuck-attaching"
	// StuckDetaching: the attachment stays detaching until it is forced, or the
	// instance stops.
	StuckDetaching FaultKind = "stuck-detaching"
	// StaysBusy: the guest keeps the device; the attachment is busy until its
	// detach is forced, or the fault is removed.
	StaysBusy FaultKind = "stays-busy"
	// OtherName: the attachment shows another device name than the requested one.
	OtherName FaultKind = "other-name"
	// CreateFails: the volume goes to the state error instead of available.
	CreateFails FaultKind = "create-fails"
	// CreateVanishes: the volume disappears instead of becoming available, as with a key
	// that the caller may not use.
	CreateVanishes FaultKind = "create-vanishes"
	// ModifyFails: the modification fails without a change.
	ModifyFails FaultKind = "modify-fails"
	// SnapshotFails: the snapshot ends in the state error.
	SnapshotFails FaultKind = "snapshot-fails"
	// NoCapacity: InsufficientVolumeCapacity.
	NoCapacity FaultKind = "no-capacity"
	// DeleteRetains: a rule keeps the deleted volume.
	DeleteRetains FaultKind = "delete-retains"
	// FastRestoreFails: enabling fast restore is refused for the snapshot.
	FastRestoreFails FaultKind = "fast-restore-fails"
)

func (f Fault) validate() error {
	kinds := []FaultKind{Slow, StuckAttaching, StuckDetaching, StaysBusy, OtherName, CreateFails, CreateVanishes,
		ModifyFails, SnapshotFails, NoCapacity, DeleteRetains, FastRestoreFails}
	switch {
	case !slices.Contains(kinds, f.Kind):
		return fmt.Errorf("fault %q: want one of %v", f.Kind, kinds)
	case f.Kind != Slow && (f.Transition != "" || f.Takes != Takes{}):
		return fmt.Errorf("fault %s: transition and takes are of %s faults only", f.Kind, Slow)
	case !slices.Contains([]Transition{"",
		CreateTransition, AttachTransition, DetachTransition, ModifyTransition, SnapshotTransition}, f.Transition):
		return fmt.Errorf("fault %s: unknown transition %q; want create, attach, detach, modify or snapshot",
			f.Kind, f.Transition)
	case f.Count < 0 || f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("fault %s: the count must not be negative and the probability be from 0 to 1", f.Kind)
	}
	return nil
}

// AddFault arms a fault and returns its ID.
func (w *World) AddFault(f Fault) (int, error) {
	if err := f.validate(); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastFault++
	f.ID = w.lastFault
	w.faults = append(w.faults, f)
	return f.ID, nil
}

// Faults lists the armed faults.
func (w *World) Faults() []Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.faults)
}

// RemoveFault disarms a fault, or all if the ID is 0. What is stuck stays stuck.
func (w *World) RemoveFault(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = slices.DeleteFunc(w.faults, func(f Fault) bool { return id == 0 || f.ID == id })
}

// faultHits reports whether a fault of that kind hits, and counts it down.
func (w *World) faultHits(kind FaultKind, v *volume, instanceID string) bool {
	_, ok := w.useFault(v, instanceID, func(f *Fault) bool { return f.Kind == kind })
	return ok
}

// takes is how long a transition takes: its usual time, or that of a fault.
func (w *World) takes(kind Transition, usual Takes, v *volume, instanceID string) Takes {
	f, ok := w.useFault(v, instanceID, func(f *Fault) bool {
		return f.Kind == Slow && (f.Transition == "" || f.Transition == kind)
	})
	if ok {
		return f.Takes
	}
	return usual
}

// useFault returns the first fault that matches and hits, and counts it down.
func (w *World) useFault(v *volume, instanceID string, matches func(f *Fault) bool) (Fault, bool) {
	for i := range w.faults {
		f := &w.faults[i]
		if !matches(f) || !f.concerns(v, instanceID) {
			continue
		}
		hit := *f
		if f.Probability > 0 && w.random.Float64() >= f.Probability {
			continue
		}
		if f.Count == 1 {
			w.faults = slices.Delete(w.faults, i, i+1)
		} else if f.Count > 1 {
			f.Count--
		}
		return hit, true
	}
	return Fault{}, false
}

func (f *Fault) concerns(v *volume, instanceID string) bool {
	if f.InstanceID != "" && f.InstanceID != instanceID {
		return false
	}
	if f.VolumeID != "" && f.VolumeID != v.ID {
		return false
	}
	if f.Name == "" {
		return true
	}
	for _, value := range v.Tags {
		if value == f.Name {
			return true
		}
	}
	return false
}
