package cloud

import (
	"slices"
	"time"
)

// seenAttachments corrects a volume's attachments.
func (m *memory) seenAttachments(f *volumeFacts, v *Volume) {
	shown := map[string]bool{}
	for i, a := range v.Attachments {
		shown[a.InstanceID] = true
		fact := f.attached[a.InstanceID]
		if fact == nil || !m.valid(fact.at) {
			continue
		}
		fact.absent = 0
		if newer(a, fact.Attachment) {
			if a.State != fact.State {
				fact.at = time.Now()
				m.volume(v.ID)
			}
			fact.Attachment = a
			continue
		}
		if earlier(a, fact.Attachment) {
			v.Attachments[i] = fact.Attachment
		}
		v.Attachments[i].State = fact.State
	}
	for instance, fact := range f.attached {
		if shown[instance] || !m.valid(fact.at) {
			continue
		}
		fact.absent++
		if m.gone(fact) {
			delete(f.attached, instance)
			continue
		}
		v.Attachments = append(v.Attachments, fact.Attachment)
	}
}

// gone reports whether an attachment that a describe lacks has ended. An attachment
// that this client has just begun may not be visible yet. One that this client is
// detaching has ended, unless the describe is so old that it may predate the attachment.
func (m *memory) gone(fact *attachmentFact) bool {
	switch fact.State {
	case Detaching, Busy:
		return time.Since(fact.began) > m.lag/4 || fact.absent >= 2
	case Attached:
		return fact.absent >= 2
	}
	return false
}

// newer reports whether a described attachment is at least as new as the known one:
// it began later, or its state is the same or a later one.
func newer(seen, known Attachment) bool {
	if earlier(seen, known) || earlier(known, seen) {
		return earlier(known, seen)
	}
	return attachmentRank(seen.State) >= attachmentRank(known.State)
}

// earlier reports whether an attachment began before another; false if the start of
// either is unknown.
func earlier(a, than Attachment) bool {
	return !a.Since.IsZero() && !than.Since.IsZero() && a.Since.Truncate(time.Second).Before(than.Since.Truncate(time.Second))
}

func attachmentRank(state string) int {
	return slices.Index([]string{Attaching, Attached, Detaching, Busy, Detached}, state)
}
