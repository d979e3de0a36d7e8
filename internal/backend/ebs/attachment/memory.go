package attachment

import (
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// state is the state of a pair of volume and instance, derived from EC2's description
// and from the memory of the pair.
type state int

const (
	absent    state = iota
	attaching       // being attached, or expected to be shown soon
	attached        // attached
	detaching       // being detached
)

func (s state) String() string {
	return [...]string{"absent", "attaching", "attached", "detaching"}[s]
}

// incarnation distinguishes one attachment of a pair from later ones: by the device
// name, which rarely repeats, and by the start, which descriptions have in seconds.
type incarnation struct {
	device string
	since  int64
}

func incarnationOf(a cloud.Attachment) incarnation {
	return incarnation{a.Device, a.Since.Unix()}
}

// memory has the recent calls and observations of this process for a pair. EC2 is
// eventually consistent: a description may be older than an earlier answer ("Eventual
// consistency in the Amazon EC2 API").
type memory struct {
	// attachSent is when the last AttachVolume was sent that may have had its effect.
	// device is its device name; accepted reports whether EC2 accepted it.
	attachSent time.Time
	device     string
	accepted   bool
	// detachSent is when the last DetachVolume, of the attachment detachOf, was sent.
	detachSent time.Time
	detachOf   incarnation
	// gone is the last attachment whose end was observed, at goneAt.
	gone   incarnation
	goneAt time.Time
}

// expected reports whether EC2 may still show an attachment that it does not show yet.
func (k memory) expected(now time.Time, o Options) bool {
	if k.attachSent.IsZero() || k.detachSent.After(k.attachSent) {
		return false
	}
	timeout := o.Stale
	if k.accepted {
		timeout = o.Lag
	}
	return now.Sub(k.attachSent) < timeout
}

// staleUntil is until when a description without attachment may be older than the
// last AttachVolume.
func (k memory) staleUntil(o Options) time.Time {
	if k.attachSent.IsZero() {
		return time.Time{}
	}
	return k.attachSent.Add(o.Stale)
}

// state derives the pair's state from the attachment that EC2 shows; nil means none.
func (k memory) state(a *cloud.Attachment, now time.Time, o Options) state {
	if a == nil || a.State == cloud.Detached || k.isGone(*a, now, o) {
		if k.expected(now, o) {
			return attaching
		}
		return absent
	}
	switch {
	case a.State == cloud.Detaching, a.State == cloud.Busy:
		if k.accepted && k.expected(now, o) && a.Device != k.device {
			return attaching // EC2 still shows the attachment before the requested one
		}
		return detaching
	case k.isDetaching(*a, now, o):
		return detaching
	case a.State == cloud.Attaching:
		return attaching
	}
	return attached
}

func (k memory) isGone(a cloud.Attachment, now time.Time, o Options) bool {
	return !k.goneAt.IsZero() && k.gone == incarnationOf(a) && now.Sub(k.goneAt) < o.Lag
}

func (k memory) isDetaching(a cloud.Attachment, now time.Time, o Options) bool {
	return !k.detachSent.IsZero() && k.detachOf == incarnationOf(a) && now.Sub(k.detachSent) < o.Lag
}

// find is the volume's attachment to the instance; nil if it has none.
func find(v cloud.Volume, instance string) *cloud.Attachment {
	for i := range v.Attachments {
		if v.Attachments[i].InstanceID == instance {
			return &v.Attachments[i]
		}
	}
	return nil
}
