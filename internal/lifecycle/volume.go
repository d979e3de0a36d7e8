package lifecycle

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// Answer is a successful answer to CreateVolume, with its circumstances.
type Answer struct {
	// Desired reports that the volume needs a PersistentVolume: its claim waits
	// for it, or its reclaim policy keeps it without the claim.
	Desired bool
	// Claimed reports that the claim still exists.
	Claimed bool
	// Usable reports that the volume satisfies the request.
	Usable bool
	// MaySaved reports that a PersistentVolume of the volume may have existed, so that
	// the volume may contain data. Its absence now then proves nothing.
	MaySaved bool
	// Holder is the PersistentVolume that names the volume already. For Delete to be
	// right it must have been read from the API server or the store, not from a cache.
	Holder Holder
}

// Fate is the decision about a volume that CreateVolume returned.
type Fate int

const (
	// Save: create its PersistentVolume.
	Save Fate = iota
	// Retain: create its PersistentVolume with policy Retain. An administrator decides.
	Retain
	// Delete: delete the volume, and then the intent.
	Delete
	// Leave: a PersistentVolume names the volume, and that object's reclaim policy
	// decides about it. The intent is removed.
	Leave
	// Wait: neither save nor delete the volume, and keep the intent: a
	// PersistentVolume names the volume, and either the claim waits for it too or
	// the volume of the same ID may be another one, on another node.
	Wait
)

func (f Fate) String() string { return [...]string{"save", "retain", "delete", "leave", "wait"}[f] }

// AfterCreate decides about a volume. A volume that a PersistentVolume
// names is never deleted here, under any name and for any claim:
// administrators rebind and rename PersistentVolumes, and shortened names of
// two claims may be equal. Such a volume is deleted by reclaim alone. A volume
// whose PersistentVolume may have existed and is gone is not deleted either: its
// policy may have been changed to Retain before.
func AfterCreate(a Answer) Fate {
	switch {
	case a.Holder.Name != "" && (a.Holder.Elsewhere || a.Desired && a.Claimed):
		return Wait
	case a.Holder.Name != "":
		return Leave
	case a.Desired && a.Usable:
		return Save
	case a.MaySaved:
		return Retain
	}
	return Delete
}

// Holder is a PersistentVolume that names a volume; the zero value is none.
type Holder struct {
	Name string
	// Elsewhere reports that the object's node affinity excludes this node. Drivers
	// that work on each node alone may give the same ID on two nodes.
	Elsewhere bool
}

// FindHolder finds a PersistentVolume with a driver's volume. elsewhere reports
// an object whose node affinity excludes this node; it may be nil. An object that
// may be here is found before one that is elsewhere.
func FindHolder(
	volumes iter.Seq[*corev1.PersistentVolume], driver, handle string, elsewhere func(*corev1.PersistentVolume) bool,
) Holder {
	var found Holder
	for pv := range volumes {
		source := pv.Spec.CSI
		if source == nil || source.Driver != driver || source.VolumeHandle != handle {
			continue
		}
		if elsewhere == nil || !elsewhere(pv) {
			return Holder{Name: pv.Name}
		}
		found = Holder{Name: pv.Name, Elsewhere: true}
	}
	return found
}
