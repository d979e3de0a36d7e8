package change

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// execute carries out a plan: tags first, then the modification. It waits until the
// modification takes effect. After a crash between the two, the repeated call finds the
// tags set.
func (g *group) execute(volume cloud.Volume, p plan) (cloud.Volume, error) {
	if err := g.makeTags(p); err != nil {
		return cloud.Volume{}, err
	}
	if !p.modifies() {
		return applied(volume, p), nil
	}
	for attempt := 0; ; attempt++ {
		g.setPhase("ModifyVolume was sent to EC2")
		g.changer.noteSent(g.id, g.earlier.Start)
		m, err := g.changer.cloud.ModifyVolume(g.ctx, p.input)
		if err == nil {
			g.changer.noteAccepted(g.id, m.Start)
			return g.finish(volume, p, m, time.Now())
		}
		m, known, err := g.refused(p, err)
		switch {
		case known:
			return g.finish(volume, p, m, m.Start)
		case err != nil:
			return cloud.Volume{}, p.withTags(err)
		case attempt == 2:
			return cloud.Volume{}, p.withTags(fmt.Errorf(
				"%w: modify volume %s: EC2's answers were lost and it shows no modification; repeat the call",
				backend.ErrUnavailable, g.id))
		}
	}
}

// makeTags removes and sets tags.
func (g *group) makeTags(p plan) error {
	g.setPhase("tags are being changed")
	if len(p.untag) > 0 {
		removed := map[string]*string{}
		for _, key := range p.untag {
			removed[key] = nil
		}
		err := g.changer.cloud.DeleteTags(g.ctx, []string{g.id}, p.untag)
		g.changer.noteTags(g.id, err, removed)
		if err != nil {
			return fmt.Errorf("remove tags %s of volume %s: %w", strings.Join(p.untag, ", "), g.id, err)
		}
	}
	if len(p.tags) > 0 {
		set := map[string]*string{}
		for key, value := range p.tags {
			set[key] = &value
		}
		err := g.changer.cloud.CreateTags(g.ctx, []string{g.id}, p.tags)
		g.changer.noteTags(g.id, err, set)
		if err != nil {
			return fmt.Errorf("set tags of volume %s: %w", g.id, err)
		}
	}
	return nil
}

// withTags adds the tags that were changed before an error to it.
func (p plan) withTags(err error) error {
	if len(p.tags) == 0 && len(p.untag) == 0 {
		return err
	}
	return fmt.Errorf("%w (its tags were changed before that: set %s, removed %s)", err,
		orNone(slices.Sorted(maps.Keys(p.tags))), orNone(p.untag))
}

func orNone(keys []string) string {
	if len(keys) == 0 {
		return "none"
	}
	return strings.Join(keys, ", ")
}

// refused handles an error of ModifyVolume. known reports that the modification is under
// way nevertheless. If known is false and err is nil, ModifyVolume may be sent again.
func (g *group) refused(p plan, cause error) (m cloud.Modification, known bool, err error) {
	switch {
	case g.ctx.Err() != nil || isContext(cause):
		if !cloud.Uncertain(cause) {
			g.changer.confirm(g.id)
		}
		return m, false, cause
	case cloud.Uncertain(cause):
		return g.recover(p)
	}
	switch cloud.Code(cause) {
	case "IncorrectModificationState", "VolumeModificationRateExceeded":
	default:
		g.changer.confirm(g.id)
		return m, false, fmt.Errorf("modify volume %s: %w", g.id, cause)
	}
	m, found, err := g.changer.cloud.Modification(g.ctx, g.id)
	switch {
	case err != nil || !found:
		return m, false, fmt.Errorf("modify volume %s: %w", g.id, cause)
	case g.isNew(m) && brings(m, p):
		return m, true, nil
	case m.State == cloud.Modifying || m.State == cloud.Optimizing:
		return m, false, running(g.id, m, cause)
	}
	return m, false, coolingDown(g.id, m, cause)
}

// recover polls for a modification whose answer was lost. ModifyVolume has no client
// token, so a second call could count as another modification.
func (g *group) recover(p plan) (m cloud.Modification, known bool, err error) {
	g.setPhase("EC2's answer to ModifyVolume was lost; the volume's modifications are polled")
	until := time.Now().Add(g.changer.options.Lag / 2)
	m, err = g.changer.cloud.WaitModification(g.ctx, g.id, cloud.Expect{},
		func(m cloud.Modification, found bool) (bool, error) {
			known = found && g.isNew(m) && brings(m, p)
			return known || !time.Now().Before(until), nil
		})
	return m, known, err
}

// isNew reports whether a modification began after the last one before this change.
func (g *group) isNew(m cloud.Modification) bool {
	return !g.earlierFound || m.Start.After(g.earlier.Start)
}

// finish waits until a modification has taken effect, and then until EC2 shows its size.
func (g *group) finish(volume cloud.Volume, p plan, m cloud.Modification, began time.Time) (cloud.Volume, error) {
	if m.State != cloud.Optimizing && m.State != cloud.ModificationCompleted {
		if err := g.awaitEffect(p, m, began); err != nil {
			return cloud.Volume{}, p.withTags(err)
		}
	}
	g.changer.noteModified(g.id, p.input, m)
	g.changer.confirm(g.id)
	if p.input.Size == 0 {
		return applied(volume, p), nil
	}
	if v, err := g.changer.cloud.Volume(g.ctx, g.id); err != nil || v.Size >= p.input.Size {
		return v, err
	}
	g.setPhase("the modification has taken effect, but EC2 does not show the new size yet")
	return g.changer.cloud.WaitVolume(g.ctx, g.id, cloud.Expect{}, func(v cloud.Volume, found bool) (bool, error) {
		if !found {
			return false, fmt.Errorf("%w: volume %s was deleted while it was being changed", backend.ErrNotFound, g.id)
		}
		return v.Size >= p.input.Size, nil
	})
}

// awaitEffect waits until the modification is optimizing or completed.
func (g *group) awaitEffect(p plan, m cloud.Modification, since time.Time) error {
	accepted := time.Now()
	if since.After(accepted) {
		since = accepted
	}
	g.setPhase("the modification has been under way since %s", stamp(since))
	task := progress.BeginPercent(g.ctx, "modifying")
	defer task.End()
	task.Set(m.Progress)
	_, err := g.changer.cloud.WaitModification(g.ctx, g.id, cloud.Expect{Kind: "modify", Since: since},
		func(shown cloud.Modification, found bool) (bool, error) {
			if !found || !g.isNew(shown) && shown.Start != m.Start || !brings(shown, p) {
				if time.Since(accepted) < g.changer.options.Lag {
					return false, nil // EC2 does not show it yet
				}
				return false, fmt.Errorf("%w: EC2 accepted a modification of volume %s but does not show it; repeat the call", backend.ErrUnavailable, g.id)
			}
			switch shown.State {
			case cloud.Optimizing, cloud.ModificationCompleted:
				return true, nil
			case cloud.ModificationFailed:
				return false, fmt.Errorf("%w: the modification of volume %s failed inside EC2 (%s), usually for a short time; repeat the call",
					backend.ErrUnavailable, g.id, orSilent(shown.Message))
			}
			task.Set(shown.Progress)
			g.setPhase("the modification is %s, %d %%, since %s", shown.State, shown.Progress, stamp(since))
			return false, nil
		})
	return err
}

func orSilent(message string) string {
	if message == "" {
		return "without a reason"
	}
	return message
}

// applied is the volume after a plan.
func applied(v cloud.Volume, p plan) cloud.Volume {
	v.Type, v.Size, v.IOPS, v.Throughput = p.after.Type, p.after.Size, p.after.IOPS, p.after.Throughput
	v.Tags = maps.Clone(v.Tags)
	if v.Tags == nil {
		v.Tags = map[string]string{}
	}
	for _, key := range p.untag {
		delete(v.Tags, key)
	}
	maps.Copy(v.Tags, p.tags)
	return v
}

// The two rules by which EC2 limits modifications of a volume: at least six hours
// from one to the next (accounts before 2026), or four in any 24 hours, each after
// the one before is completed (EC2 API, ModifyVolume, 2026).
const (
	restBetween = 6 * time.Hour
	restOfFour  = 24 * time.Hour
)

// running is the error for a change while another is under way.
func running(id string, m cloud.Modification, cause error) error {
	text := fmt.Sprintf("volume %s: a modification (%s) is %s, %d %%, since %s; EC2 accepts the next one when it is completed",
		id, targets(m), m.State, m.Progress, stamp(m.Start))
	if m.Progress > 0 && m.Progress < 100 && !m.Start.IsZero() {
		elapsed := time.Since(m.Start)
		text += ", at this rate at " + stamp(m.Start.Add(elapsed*100/time.Duration(m.Progress)))
	}
	text += fmt.Sprintf("; in an account with the rule of six hours, at %s at the earliest",
		stamp(m.Start.Add(restBetween)))
	if cause != nil {
		return fmt.Errorf("%w: %s: %w", backend.ErrBusy, text, cause)
	}
	return fmt.Errorf("%w: %s", backend.ErrBusy, text)
}

// coolingDown is the error for a change that comes too soon after others.
func coolingDown(id string, m cloud.Modification, cause error) error {
	return fmt.Errorf("%w: volume %s was modified last (%s) at %s, and EC2 accepts the next modification later: "+
		"by the rule of six hours at %s, by the rule of four in 24 hours when the oldest of the four is that old, at the latest at %s: %w",
		backend.ErrNoSpace, id, targets(m), stamp(m.Start), stamp(m.Start.Add(restBetween)), stamp(m.Start.Add(restOfFour)), cause)
}

func targets(m cloud.Modification) string {
	return Desired{Size: m.TargetSize, Type: m.TargetType, IOPS: m.TargetIOPS, Throughput: m.TargetThroughput}.String()
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
