package attachment

import (
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// standing is what a pair of volume and instance is taken for, by what EC2 shows
// and what is remembered.
type standing int

const (
	absent   standing = iota
	coming            // being attached, or expected to show up as that
	attached          // attached
	going             // being detached
)

func (s standing) String() string {
	return [...]string{"absent", "attaching", "attached", "detaching"}[s]
}

// incarnation tells one attachment of a pair from the next: by its device name,
// which is rarely the same twice, and its time, of which descriptions have the
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
	// asked is when an attachment was last asked for that may have come about;
	// device is its name, and accepted reports whether EC2 said yes.
	asked    time.Time
	device   string
	accepted bool
	// left is when a detachment of leaving was last asked for.
	left    time.Time
	leaving incarnation
	// seen is when it was last seen under way.
	seen time.Time
	// over is the attachment that was seen to be gone, at overAt.
	over   incarnation
	overAt time.Time
}

// expected reports whether an attachment that EC2 does not show can still show up.
func (k memory) expected(now time.Time, o Options) bool {
	if k.asked.IsZero() || k.left.After(k.asked) {
		return false
	}
	patience := o.Stale
	if k.accepted {
		patience = o.Lag
	}
	return now.Sub(k.asked) < patience
}

// doubt is until when EC2's showing no attachment may be older than one that was
// asked for.
func (k memory) doubt(o Options) time.Time {
	if k.asked.IsZero() {
		return time.Time{}
	}
	return k.asked.Add(o.Stale)
}

// standing judges what EC2 shows of the pair; a nil attachment means nothing.
func (k memory) standing(a *cloud.Attachment, now time.Time, o Options) standing {
	if a == nil || a.State == cloud.Detached || k.isOver(*a, now, o) {
		if k.expected(now, o) {
			return coming
		}
		return absent
	}
	switch a.State {
	case cloud.Detaching, cloud.Busy:
		if k.accepted && k.expected(now, o) && a.Device != k.device {
			return coming // the attachment before the one that was asked for
		}
		return going
	case cloud.Attaching:
		if k.isLeaving(*a, now, o) {
			return going
		}
		return coming
	default:
		if k.isLeaving(*a, now, o) {
			return going
		}
		return attached
	}
}

func (k memory) isOver(a cloud.Attachment, now time.Time, o Options) bool {
	return !k.overAt.IsZero() && k.over == incarnationOf(a) && now.Sub(k.overAt) < o.Lag
}

func (k memory) isLeaving(a cloud.Attachment, now time.Time, o Options) bool {
	return !k.left.IsZero() && k.leaving == incarnationOf(a) && now.Sub(k.left) < o.Lag
}

// latest is when something was last noted.
func (k memory) latest() time.Time {
	latest := k.asked
	for _, t := range []time.Time{k.left, k.seen, k.overAt} {
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
