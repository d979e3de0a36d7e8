package change

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// ec2 is as much of EC2 as changing takes.
type ec2 struct {
	latency, modifies, optimizes time.Duration
	rest                         time.Duration // between modifications
	// lag is how old the next description is.
	lag func() time.Duration
	// refuse may answer a changing call instead; lose executes it and drops the answer.
	refuse func(action string) error
	lose   func(action string) bool
	fails  bool // modifications end failed
	idle   int  // modifications that changed nothing

	mu      sync.Mutex
	states  map[string][]state // by volume, oldest first
	latest  map[string]*cloud.Modification
	calls   map[string]int
	journal []string
}

// state is a volume from a time on.
type state struct {
	from   time.Time
	volume cloud.Volume
}

func newEC2(volumes ...cloud.Volume) *ec2 {
	e := &ec2{
		latency: 50 * time.Millisecond, modifies: 2 * time.Second, optimizes: time.Hour, rest: 6 * time.Hour,
		states: map[string][]state{}, latest: map[string]*cloud.Modification{}, calls: map[string]int{},
	}
	for _, v := range volumes {
		e.states[v.ID] = []state{{volume: v}}
	}
	return e
}

func gp3(id string) cloud.Volume {
	return cloud.Volume{ID: id, State: cloud.VolumeInUse, Type: "gp3", Size: 10, IOPS: 3000, Throughput: 125, Tags: map[string]string{"CSIVolumeName": "pvc"}}
}

// act does something in the middle of a call.
func (e *ec2) act(ctx context.Context, action string, do func() error) error {
	e.mu.Lock()
	e.calls[action]++
	e.mu.Unlock()
	if err := concurrency.Sleep(ctx, e.latency/2); err != nil {
		return err
	}
	e.mu.Lock()
	err := do()
	e.mu.Unlock()
	if left := concurrency.Sleep(ctx, e.latency/2); left != nil {
		return left
	}
	if e.lose != nil && e.lose(action) {
		return &cloud.Error{Action: action, Message: "connection reset", Uncertain: true}
	}
	return err
}

func (e *ec2) change(ctx context.Context, action, note string, do func() error) error {
	return e.act(ctx, action, func() error {
		e.journal = append(e.journal, note)
		if e.refuse != nil {
			if err := e.refuse(action); err != nil {
				return err
			}
		}
		return do()
	})
}

func answer(action, code, format string, arguments ...any) error {
	err := &cloud.Error{Action: action, Code: code, Message: fmt.Sprintf(format, arguments...)}
	switch code {
	case "InvalidVolume.NotFound":
		return fmt.Errorf("%w: %w", backend.ErrNotFound, err)
	case "VolumeModificationRateExceeded", "VolumeModificationSizeLimitExceeded":
		return fmt.Errorf("%w: %w", backend.ErrNoSpace, err)
	case "IncorrectModificationState":
		return fmt.Errorf("%w: %w", backend.ErrBusy, err)
	}
	return err
}

func (e *ec2) count(action string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[action]
}

// at is a volume at a time; e.mu is held.
func (e *ec2) at(id string, t time.Time) (cloud.Volume, bool) {
	all := e.states[id]
	for i := len(all) - 1; i >= 0; i-- {
		if !all[i].from.After(t) {
			return all[i].volume, true
		}
	}
	return cloud.Volume{}, false
}

func (e *ec2) truth(id string) cloud.Volume {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, _ := e.at(id, time.Now())
	return v
}

func (e *ec2) shownAt() time.Time {
	if e.lag == nil {
		return time.Now()
	}
	return time.Now().Add(-e.lag())
}

func (e *ec2) Volume(ctx context.Context, id string) (v cloud.Volume, err error) {
	err = e.act(ctx, "DescribeVolumes", func() error {
		var found bool
		if v, found = e.at(id, e.shownAt()); !found {
			return answer("DescribeVolumes", "InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
		}
		return nil
	})
	return v, err
}

func (e *ec2) WaitVolume(ctx context.Context, id string, _ cloud.Expect, ready func(cloud.Volume, bool) (bool, error)) (cloud.Volume, error) {
	for {
		v, err := e.Volume(ctx, id)
		if err != nil {
			return v, err
		}
		if done, err := ready(v, true); done || err != nil {
			return v, err
		}
		if err := concurrency.Sleep(ctx, 250*time.Millisecond); err != nil {
			return v, err
		}
	}
}

// shown is a modification as it is at a time.
func (e *ec2) shown(id string, t time.Time) (cloud.Modification, bool) {
	m := e.latest[id]
	if m == nil || t.Before(m.Start) {
		return cloud.Modification{}, false
	}
	out := *m
	switch effect := m.Start.Add(e.modifies); {
	case t.Before(effect):
		out.State = cloud.Modifying
	case e.fails:
		out.State, out.Message = cloud.ModificationFailed, "a fault of the service"
	case t.Before(effect.Add(e.optimizes)):
		out.State, out.Progress = cloud.Optimizing, int64(t.Sub(effect)*100/e.optimizes)
	default:
		out.State, out.Progress = cloud.ModificationCompleted, 100
	}
	return out, true
}

func (e *ec2) Modification(ctx context.Context, id string) (m cloud.Modification, found bool, err error) {
	err = e.act(ctx, "DescribeVolumesModifications", func() error {
		m, found = e.shown(id, e.shownAt())
		return nil
	})
	return m, found, err
}

func (e *ec2) WaitModification(ctx context.Context, id string, _ cloud.Expect, ready func(cloud.Modification, bool) (bool, error)) (cloud.Modification, error) {
	for {
		m, found, err := e.Modification(ctx, id)
		if err != nil {
			return m, err
		}
		if done, err := ready(m, found); done || err != nil {
			return m, err
		}
		if err := concurrency.Sleep(ctx, 250*time.Millisecond); err != nil {
			return m, err
		}
	}
}

func (e *ec2) ModifyVolume(ctx context.Context, in cloud.ModifyInput) (m cloud.Modification, err error) {
	err = e.change(ctx, "ModifyVolume", fmt.Sprintf("modify %+v", in), func() (err error) { m, err = e.modify(in); return err })
	if err != nil {
		return cloud.Modification{}, err
	}
	return m, nil
}

func (e *ec2) modify(in cloud.ModifyInput) (cloud.Modification, error) {
	now := time.Now()
	v, found := e.at(in.VolumeID, now)
	if !found {
		return cloud.Modification{}, answer("ModifyVolume", "InvalidVolume.NotFound", "The volume '%s' does not exist.", in.VolumeID)
	}
	if last, ok := e.shown(in.VolumeID, now); ok {
		switch {
		case last.State == cloud.Modifying || last.State == cloud.Optimizing:
			return cloud.Modification{}, answer("ModifyVolume", "IncorrectModificationState", "Volume %s in %s state is not allowed to be modified", in.VolumeID, last.State)
		case now.Sub(last.Start) < e.rest && last.State != cloud.ModificationFailed:
			return cloud.Modification{}, answer("ModifyVolume", "VolumeModificationRateExceeded", "You've reached the maximum modification rate per volume limit.")
		}
	}
	m := &cloud.Modification{
		VolumeID: v.ID, State: cloud.Modifying, Start: now.Truncate(time.Millisecond),
		TargetSize: v.Size, TargetType: v.Type, TargetIOPS: v.IOPS, TargetThroughput: v.Throughput,
	}
	set(&m.TargetSize, in.Size)
	set(&m.TargetType, in.Type)
	set(&m.TargetIOPS, in.IOPS)
	set(&m.TargetThroughput, in.Throughput)
	e.latest[v.ID] = m
	if m.TargetSize == v.Size && m.TargetType == v.Type && m.TargetIOPS == v.IOPS && m.TargetThroughput == v.Throughput {
		e.idle++
	}
	if !e.fails {
		v.Size, v.Type, v.IOPS, v.Throughput = m.TargetSize, m.TargetType, m.TargetIOPS, m.TargetThroughput
		e.states[v.ID] = append(e.states[v.ID], state{now.Add(e.modifies), v})
	}
	return *m, nil
}

func set[T comparable](field *T, value T) {
	var zero T
	if value != zero {
		*field = value
	}
}

// retag changes the tags of a volume now and later; e.mu is held.
func (e *ec2) retag(id string, change func(map[string]string)) {
	now := time.Now()
	v, _ := e.at(id, now)
	e.states[id] = append(e.states[id], state{now, v})
	for i := range e.states[id] {
		if s := &e.states[id][i]; !s.from.Before(now) {
			s.volume.Tags = maps.Clone(s.volume.Tags)
			change(s.volume.Tags)
		}
	}
	last := len(e.states[id]) - 1 // in the order of time
	for i := last; i > 0 && e.states[id][i].from.Before(e.states[id][i-1].from); i-- {
		e.states[id][i], e.states[id][i-1] = e.states[id][i-1], e.states[id][i]
	}
}

func (e *ec2) CreateTags(ctx context.Context, ids []string, tags map[string]string) error {
	return e.change(ctx, "CreateTags", fmt.Sprintf("tag %v", tags), func() error {
		e.retag(ids[0], func(all map[string]string) { maps.Copy(all, tags) })
		return nil
	})
}

func (e *ec2) DeleteTags(ctx context.Context, ids []string, keys []string) error {
	return e.change(ctx, "DeleteTags", fmt.Sprintf("untag %v", keys), func() error {
		e.retag(ids[0], func(all map[string]string) {
			for _, key := range keys {
				delete(all, key)
			}
		})
		return nil
	})
}
