package attachment

import (
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// state is that of a pair of volume and instance, derived from what EC2 shows and
// from the memory of the pair.
type state int

const (
	absent    state = iota
	attaching       // being attached, or expected to show up as that
	attached        // attached
	detaching       // being detached
)

func (s state) String() string {
	return [...]string{"absent", "attaching", "attached", "detaching"}[s]
}

// incarnation identifies one attachment of a pair among its successors: by the
// device name, which rarely repeats, and the start, of which descriptions have the
// seconds only.
type incarnation struct {
	device string
	since  int64
}

func incarnationOf(a cloud.Attachment) incarnation {
	return incarnation{a.Device, a.Since.Unix()}
}

// memory is what this process knows of a pair beyond what EC2 shows. EC2 is
// eventually consistent: a description may be older than an answer that was
// already given ("Eventual consistency in the Amazon EC2 API").
type memory struct {
	// attachSent is when an AttachVolume was last sent that may have had its effect;
	// device is its device name, and accepted reports whether EC2 accepted it.
	attachSent time.Time
	device     string
	accepted   bool
	// detachSent is when a DetachVolume of detachOf was last sent.
	detachSent time.Time
	detachOf   incarnation
	// seen is when a detachment was last observed.
	seen time.Time
	// gone is the attachment whose end was observed at goneAt.
	gone   incarnation
	goneAt time.Time
}

// expected reports whether an attachment that EC2 does not show can still show up.
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
	switch a.State {
	case cloud.Detaching, cloud.Busy:
		if k.accepted && k.expected(now, o) && a.Device != k.device {
			return attaching // the attachment before the one that was asked for
		}
		return detaching
	case cloud.Attaching:
		if k.isDetaching(*a, now, o) {
			return detaching
		}
		return attaching
	default:
		if k.isDetaching(*a, now, o) {
			return detaching
		}
		return attached
	}
}

func (k memory) isGone(a cloud.Attachment, now time.Time, o Options) bool {
	return !k.goneAt.IsZero() && k.gone == incarnationOf(a) && now.Sub(k.goneAt) < o.Lag
}

func (k memory) isDetaching(a cloud.Attachment, now time.Time, o Options) bool {
	return !k.detachSent.IsZero() && k.detachOf == incarnationOf(a) && now.Sub(k.detachSent) < o.Lag
}

// latest is the time of the newest entry.
func (k memory) latest() time.Time {
	latest := k.attachSent
	for _, t := range []time.Time{k.detachSent, k.seen, k.goneAt} {
		if t.After(latest) {
			latest = t
		}
	}
	return latest
}

// find is the volume's attachment to the instance, nil when it shows none.
func find(v cloud.Volume, instance string) *cloud.Attachment {
	for i := range v.Attachments {
		if v.Attachments[i].InstanceID == instance {
			return &v.Attachments[i]
		}
	}
	return nil
}
