package store

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Provisioning is the intent to make a volume for a claim. It is written before
// CreateVolume and removed together with the writing of the PersistentVolume,
// so that between the two a crash leaves the way to find the volume again: the
// same request, word for word.
type Provisioning struct {
	ClaimUID   types.UID
	Claim      string // namespace/name
	VolumeName string
	Driver     string
	// Class is the claim's, as it was then.
	Class storagev1.StorageClass
	// Request is the CreateVolumeRequest as protobuf JSON, without secrets.
	Request json.RawMessage
	Started time.Time
	// Volume is the PersistentVolume as far as it is known before the driver is
	// called, with references to its secrets.
	Volume *corev1.PersistentVolume `json:",omitempty"`
	// Source is the object that the volume is a copy of, as resource/namespace/name: it
	// cannot be deleted while the record exists.
	Source string `json:",omitempty"`
	// Abandoned: the claim was deleted before its volume was known. The volume,
	// if there is one, is found by the request and deleted.
	Abandoned bool `json:",omitempty"`
	Trouble
}

// Phase is the progress of a step of a volume. The transient phases are the intent,
// written before the call to the driver; the others are its outcome.
type Phase string

// The phases of a step.
const (
	PhaseNone    Phase = ""
	PhaseDoing   Phase = "doing"
	PhaseDone    Phase = "done"
	PhaseUndoing Phase = "undoing"
)

// Trouble is how a step fared that does not succeed.
type Trouble struct {
	Attempts  int    `json:",omitempty"`
	LastError string `json:",omitempty"`
	Outcome   string `json:",omitempty"` // claim.Outcome of LastError
}

// VolumeUse is one volume in use on this machine, with all that undoing the use needs,
// so that its objects may be gone.
type VolumeUse struct {
	Name       string // claim.UniqueName or claim.UniqueInlineName
	SpecName   string // the PersistentVolume's name, or the volume's in the pod
	Driver     string
	Handle     string
	Label      string // its name in messages
	Inline     bool   `json:",omitempty"`
	Block      bool   `json:",omitempty"`
	FSType     string
	MountFlags []string                            `json:",omitempty"`
	Modes      []corev1.PersistentVolumeAccessMode `json:",omitempty"`
	// Attributes are the volume's, without the pod's keys.
	Attributes     map[string]string `json:",omitempty"`
	PublishContext map[string]string `json:",omitempty"`
	NodeID         string            `json:",omitempty"`
	StagingPath    string            `json:",omitempty"`

	// AttachReadOnly and AttachSecret are arguments of ControllerPublishVolume;
	// the secret is a reference, which ControllerUnpublishVolume needs, too.
	AttachReadOnly bool                    `json:",omitempty"`
	AttachSecret   *corev1.SecretReference `json:",omitempty"`
	// Attachment is the name of the VolumeAttachment object, if one was written.
	Attachment string `json:",omitempty"`
	// ExpandRefused is the size that the driver does not grow to while the volume
	// is in use: it is not asked again before the volume is used again.
	ExpandRefused string `json:",omitempty"`
	// StageMounted: after NodeStageVolume something was mounted at StagingPath,
	// which not every driver does.
	StageMounted bool `json:",omitempty"`
	// LastPod is the pod whose target was the last one that was removed. The remaining
	// steps of the unmount are done for it.
	LastPod types.UID `json:",omitempty"`

	Attach  Phase             `json:",omitempty"`
	Stage   Phase             `json:",omitempty"`
	Targets map[string]Target `json:",omitempty"` // by path
	// BootID is of the boot in which the phases were written: in another one, the
	// mounts do not exist.
	BootID string
	Trouble
}

// Target is one path where a volume is published.
type Target struct {
	Phase      Phase
	PodUID     types.UID
	Pod        string // namespace/name
	VolumeName string // in the pod
	ReadOnly   bool   `json:",omitempty"`
	// Device is the number (major:minor) of the mount that the driver published;
	// another number later is of another program's mount.
	Device string `json:",omitempty"`
	// OncePod: the PersistentVolume of this target has the access mode ReadWriteOncePod.
	OncePod bool `json:",omitempty"`
	// SELinuxLabel is the label that the volume was mounted with.
	SELinuxLabel string `json:",omitempty"`
}

// Idle reports whether nothing of the use is left.
func (u *VolumeUse) Idle() bool {
	return len(u.Targets) == 0 && u.Stage == PhaseNone && u.Attach == PhaseNone
}
