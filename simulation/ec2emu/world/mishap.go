package world

import (
	"fmt"
	"slices"
)

// Mishap is something that goes wrong with volumes or their attachments, as
// opposed to calls, which are package ec2emu's.
type Mishap struct {
	Kind MishapKind `json:"kind"`
	// VolumeID and InstanceID narrow it; empty is any. Name is the value of any
	// tag of the volume, for one that has no ID yet.
	VolumeID   string `json:"volumeId,omitempty"`
	InstanceID string `json:"instanceId,omitempty"`
	Name       string `json:"name,omitempty"`
	// Count is how often it happens before it is used up; 0 is no bound.
	Count int `json:"count,omitempty"`
	// Probability is the share of the cases that it hits; 0 is all.
	Probability float64 `json:"probability,omitempty"`
	// Transition and Takes are of a Slow mishap: which kind of transition it
	// prolongs, empty is any, and how long that takes instead.
	Transition Transition `json:"transition,omitempty"`
	Takes      Takes      `json:"takes,omitzero"`
	// ID is given by AddMishap.
	ID int `json:"id"`
}

// MishapKind is one of the constants below.
type MishapKind string

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

// Kinds of mishaps.
const (
	// Slow: a transition takes another time than usual.
	Slow MishapKind = "slow"
	// StuckAttaching: the attachment stays attaching until it is detached.
	StuckAttaching MishapKind = "stuck-attaching"
	// StuckDetaching: the attachment stays detaching until it is forced, or the
	// instance stops.
	StuckDetaching MishapKind = "stuck-detaching"
	// StaysBusy: the guest does not let go; busy until it is forced, or the
	// mishap is removed.
	StaysBusy MishapKind = "stays-busy"
	// OtherName: the attachment shows another device name than was asked for.
	OtherName MishapKind = "other-name"
	// CreateFails: the volume goes to the state error instead of available.
	CreateFails MishapKind = "create-fails"
	// CreateVanishes: the volume is gone instead of available, as with a key
	// that the caller may not use.
	CreateVanishes MishapKind = "create-vanishes"
	// ModifyFails: the modification ends failed, and nothing has changed.
	ModifyFails MishapKind = "modify-fails"
	// SnapshotFails: the snapshot ends in the state error.
	SnapshotFails MishapKind = "snapshot-fails"
	// NoCapacity: InsufficientVolumeCapacity.
	NoCapacity MishapKind = "no-capacity"
	// DeleteRetains: a rule keeps the deleted volume.
	DeleteRetains MishapKind = "delete-retains"
	// FastRestoreFails: enabling fast restore is refused for the snapshot.
	FastRestoreFails MishapKind = "fast-restore-fails"
)

func (m Mishap) validate() error {
	kinds := []MishapKind{Slow, StuckAttaching, StuckDetaching, StaysBusy, OtherName, CreateFails, CreateVanishes,
		ModifyFails, SnapshotFails, NoCapacity, DeleteRetains, FastRestoreFails}
	switch {
	case !slices.Contains(kinds, m.Kind):
		return fmt.Errorf("mishap %q: want one of %v", m.Kind, kinds)
	case m.Kind != Slow && (m.Transition != "" || m.Takes != Takes{}):
		return fmt.Errorf("mishap %s: transition and takes are of %s mishaps only", m.Kind, Slow)
	case !slices.Contains([]Transition{"", CreateTransition, AttachTransition, DetachTransition, ModifyTransition, SnapshotTransition}, m.Transition):
		return fmt.Errorf("mishap %s: unknown transition %q; want create, attach, detach, modify or snapshot", m.Kind, m.Transition)
	case m.Count < 0 || m.Probability < 0 || m.Probability > 1:
		return fmt.Errorf("mishap %s: the count must not be negative and the probability be from 0 to 1", m.Kind)
	}
	return nil
}

// AddMishap arms one and returns its ID.
func (w *World) AddMishap(m Mishap) (int, error) {
	if err := m.validate(); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastMishap++
	m.ID = w.lastMishap
	w.mishaps = append(w.mishaps, m)
	return m.ID, nil
}

// Mishaps lists those that are armed.
func (w *World) Mishaps() []Mishap {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mishaps)
}

// RemoveMishap disarms one; all when the ID is 0. What is stuck stays stuck.
func (w *World) RemoveMishap(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mishaps = slices.DeleteFunc(w.mishaps, func(m Mishap) bool { return id == 0 || m.ID == id })
}

// strikes reports whether a mishap of that kind hits, and uses it up.
func (w *World) strikes(kind MishapKind, v *volume, instanceID string) bool {
	_, ok := w.strike(v, instanceID, func(m *Mishap) bool { return m.Kind == kind })
	return ok
}

// takes is how long a transition takes: its usual time, or that of a mishap.
func (w *World) takes(kind Transition, usual Takes, v *volume, instanceID string) Takes {
	m, ok := w.strike(v, instanceID, func(m *Mishap) bool {
		return m.Kind == Slow && (m.Transition == "" || m.Transition == kind)
	})
	if ok {
		return m.Takes
	}
	return usual
}

// strike returns the first mishap that matches and hits, and uses it up.
func (w *World) strike(v *volume, instanceID string, matches func(m *Mishap) bool) (Mishap, bool) {
	for i := range w.mishaps {
		m := &w.mishaps[i]
		if !matches(m) || !m.concerns(v, instanceID) {
			continue
		}
		hit := *m
		if m.Probability > 0 && w.random.Float64() >= m.Probability {
			continue
		}
		if m.Count == 1 {
			w.mishaps = slices.Delete(w.mishaps, i, i+1)
		} else if m.Count > 1 {
			m.Count--
		}
		return hit, true
	}
	return Mishap{}, false
}

func (m *Mishap) concerns(v *volume, instanceID string) bool {
	if m.InstanceID != "" && m.InstanceID != instanceID {
		return false
	}
	if m.VolumeID != "" && m.VolumeID != v.ID {
		return false
	}
	if m.Name == "" {
		return true
	}
	for _, value := range v.Tags {
		if value == m.Name {
			return true
		}
	}
	return false
}
