package attachment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

const never = 1000 * time.Hour

// ec2 models the part of EC2 that attaches: transitions take time, and descriptions may be
// late. It stores facts with their times, so that a description can show any earlier time.
type ec2 struct {
	latency, attaches, detaches time.Duration
	// lag is how old the next description is.
	lag func() time.Duration
	// refuse may answer an AttachVolume or DetachVolume instead; lose executes it
	// and drops the answer.
	refuse func(action string, in cloud.AttachInput) error
	lose   func(action string) bool
	// stuck reports whether an attachment never completes.
	stuck func(in cloud.AttachInput) bool

	mu        sync.Mutex
	volumes   map[string]*volume
	instances map[string]*cloud.Instance
	calls     map[string]int
	cards     map[string]int
	journal   []string
}

type volume struct {
	cloud.Volume
	facts []*fact
}

// fact is one attachment from beginning to end.
type fact struct {
	instance, device string
	card             int32
	began, complete  time.Time
	leaving, gone    time.Time // zero: not yet
}

func newEC2() *ec2 {
	return &ec2{
		latency: 50 * time.Millisecond, attaches: 2 * time.Second, detaches: 2 * time.Second,
		volumes: map[string]*volume{}, instances: map[string]*cloud.Instance{}, calls: map[string]int{}, cards: map[string]int{},
	}
}

func (e *ec2) addVolume(ids ...string) *ec2 {
	for _, id := range ids {
		e.volumes[id] = &volume{Volume: cloud.Volume{ID: id, State: cloud.VolumeAvailable, Zone: "zone-a", Type: "gp3", Size: 8}}
	}
	return e
}

func (e *ec2) addInstance(ids ...string) *ec2 {
	for _, id := range ids {
		e.instances[id] = &cloud.Instance{ID: id, Type: "m5.large", State: cloud.InstanceRunning, Zone: "zone-a"}
	}
	return e
}

// answer is an error of EC2 with the sentinel that the client gives it.
func answer(action, code, format string, arguments ...any) error {
	err := &cloud.Error{Action: action, Code: code, Message: fmt.Sprintf(format, arguments...)}
	switch code {
	case "InvalidVolume.NotFound", "InvalidInstanceID.NotFound", "InvalidAttachment.NotFound":
		return fmt.Errorf("%w: %w", backend.ErrNotFound, err)
	case "VolumeInUse":
		return fmt.Errorf("%w: %w", backend.ErrInUse, err)
	case "AttachmentLimitExceeded":
		return fmt.Errorf("%w: %w", backend.ErrNoSpace, err)
	case "InvalidParameterValue":
		return fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	return err
}

// call takes the time of a call. Its effect comes in the middle of it.
func (e *ec2) call(ctx context.Context, action string) error {
	e.mu.Lock()
	e.calls[action]++
	e.mu.Unlock()
	return concurrency.Sleep(ctx, e.latency/2)
}

// mutations is how many calls there were that change something.
func (e *ec2) mutations() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls["AttachVolume"] + e.calls["DetachVolume"]
}

func (e *ec2) count(action string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[action]
}

// at is the state of an attachment at a time; ok is false without an attachment.
func (f *fact) at(t time.Time, id string) (cloud.Attachment, bool) {
	a := cloud.Attachment{VolumeID: id, InstanceID: f.instance, Device: f.device, Since: f.began.Truncate(time.Second), Card: f.card}
	switch {
	case t.Before(f.began), !f.gone.IsZero() && !t.Before(f.gone):
		return a, false
	case !f.leaving.IsZero() && !t.Before(f.leaving):
		a.State = cloud.Detaching
	case t.Before(f.complete):
		a.State = cloud.Attaching
	default:
		a.State = cloud.Attached
	}
	return a, true
}

// view is the volume as it was at a time; the caller holds e.mu.
func (e *ec2) view(v *volume, t time.Time) cloud.Volume {
	shown := v.Volume
	shown.Attachments = nil
	for _, f := range v.facts {
		if a, ok := f.at(t, v.ID); ok {
			shown.Attachments = append(shown.Attachments, a)
		}
	}
	if len(shown.Attachments) > 0 && shown.State == cloud.VolumeAvailable {
		shown.State = cloud.VolumeInUse
	}
	return shown
}

// truth is the actual state of a volume at an instance now.
func (e *ec2) truth(id, instance string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v := e.volumes[id]; v != nil {
		shown := e.view(v, time.Now())
		if a := find(shown, instance); a != nil {
			return a.State
		}
	}
	return "absent"
}

func (e *ec2) shownAt() time.Time {
	if e.lag == nil {
		return time.Now()
	}
	return time.Now().Add(-e.lag())
}

func (e *ec2) Volume(ctx context.Context, id string) (cloud.Volume, error) {
	if err := e.call(ctx, "DescribeVolumes"); err != nil {
		return cloud.Volume{}, err
	}
	shown, found := e.describe(id)
	if err := concurrency.Sleep(ctx, e.latency/2); err != nil {
		return cloud.Volume{}, err
	}
	if !found {
		return shown, answer("DescribeVolumes", "InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
	}
	return shown, nil
}

func (e *ec2) describe(id string) (cloud.Volume, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.volumes[id]
	if v == nil {
		return cloud.Volume{}, false
	}
	return e.view(v, e.shownAt()), true
}

func (e *ec2) Instance(ctx context.Context, id string) (cloud.Instance, error) {
	if err := e.call(ctx, "DescribeInstances"); err != nil {
		return cloud.Instance{}, err
	}
	e.mu.Lock()
	shown, found := e.instanceView(id)
	e.mu.Unlock()
	if err := concurrency.Sleep(ctx, e.latency/2); err != nil {
		return cloud.Instance{}, err
	}
	if !found {
		return shown, answer("DescribeInstances", "InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
	}
	return shown, nil
}

func (e *ec2) instanceView(id string) (cloud.Instance, bool) {
	i := e.instances[id]
	if i == nil {
		return cloud.Instance{}, false
	}
	shown := *i
	shown.Devices = slices.Clone(i.Devices)
	t := e.shownAt()
	for _, v := range e.volumes {
		for _, f := range v.facts {
			if a, ok := f.at(t, v.ID); ok && f.instance == id {
				shown.Devices = append(shown.Devices, cloud.InstanceDevice{Name: a.Device, VolumeID: v.ID, State: a.State, Card: a.Card})
			}
		}
	}
	return shown, true
}

func (e *ec2) InstanceType(ctx context.Context, name string) (cloud.InstanceType, error) {
	if err := e.call(ctx, "DescribeInstanceTypes"); err != nil {
		return cloud.InstanceType{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if cards, known := e.cards[name]; known {
		return cloud.InstanceType{Name: name, Cards: cards}, nil
	}
	return cloud.InstanceType{}, answer("DescribeInstanceTypes", "UnauthorizedOperation", "You are not authorized to perform this operation.")
}

// WaitVolume polls every quarter of a second, from the expected time on.
func (e *ec2) WaitVolume(ctx context.Context, id string, expect cloud.Expect, ready func(cloud.Volume, bool) (bool, error)) (cloud.Volume, error) {
	if err := concurrency.Sleep(ctx, time.Until(expect.Since)); err != nil {
		return cloud.Volume{}, err
	}
	for {
		if err := e.call(ctx, "DescribeVolumes"); err != nil {
			return cloud.Volume{}, err
		}
		v, found := e.describe(id)
		if err := concurrency.Sleep(ctx, e.latency/2); err != nil {
			return cloud.Volume{}, err
		}
		if done, err := ready(v, found); done || err != nil {
			return v, err
		}
		if err := concurrency.Sleep(ctx, 250*time.Millisecond); err != nil {
			return cloud.Volume{}, err
		}
	}
}

func (e *ec2) AttachVolume(ctx context.Context, in cloud.AttachInput) (cloud.Attachment, error) {
	if err := e.call(ctx, "AttachVolume"); err != nil {
		return cloud.Attachment{}, err
	}
	a, err := e.attach(in)
	if left := concurrency.Sleep(ctx, e.latency/2); left != nil {
		return cloud.Attachment{}, left
	}
	if e.lose != nil && e.lose("AttachVolume") {
		return cloud.Attachment{}, &cloud.Error{Action: "AttachVolume", Message: "connection reset", Uncertain: true}
	}
	return a, err
}

func (e *ec2) attach(in cloud.AttachInput) (cloud.Attachment, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.journal = append(e.journal, "attach "+in.VolumeID+" "+in.InstanceID+" "+in.Device)
	v, i, now := e.volumes[in.VolumeID], e.instances[in.InstanceID], time.Now()
	switch {
	case v == nil:
		return cloud.Attachment{}, answer("AttachVolume", "InvalidVolume.NotFound", "The volume '%s' does not exist.", in.VolumeID)
	case i == nil:
		return cloud.Attachment{}, answer("AttachVolume", "InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", in.InstanceID)
	}
	if e.refuse != nil {
		if err := e.refuse("AttachVolume", in); err != nil {
			return cloud.Attachment{}, err
		}
	}
	shown := e.view(v, now)
	if len(shown.Attachments) > 0 && (!v.MultiAttach || find(shown, in.InstanceID) != nil) {
		return cloud.Attachment{}, answer("AttachVolume", "VolumeInUse", "%s is already attached to an instance", in.VolumeID)
	}
	for _, other := range e.volumes {
		for _, f := range other.facts {
			if _, there := f.at(now, other.ID); there && f.instance == in.InstanceID && f.device == in.Device {
				return cloud.Attachment{}, answer("AttachVolume", "InvalidParameterValue", "Invalid value '%s' for unixDevice. Attachment point %s is already in use", in.Device, in.Device)
			}
		}
	}
	f := &fact{instance: in.InstanceID, device: in.Device, began: now, complete: now.Add(e.attaches)}
	if in.Card != nil {
		f.card = *in.Card
	}
	if e.stuck != nil && e.stuck(in) {
		f.complete = now.Add(never)
	}
	v.facts = append(v.facts, f)
	a, _ := f.at(now, v.ID)
	return a, nil
}

func (e *ec2) DetachVolume(ctx context.Context, id, instance string, force bool) error {
	if err := e.call(ctx, "DetachVolume"); err != nil {
		return err
	}
	err := e.detach(id, instance, force)
	if left := concurrency.Sleep(ctx, e.latency/2); left != nil {
		return left
	}
	if e.lose != nil && e.lose("DetachVolume") {
		return &cloud.Error{Action: "DetachVolume", Message: "connection reset", Uncertain: true}
	}
	return err
}

func (e *ec2) detach(id, instance string, force bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.journal = append(e.journal, fmt.Sprintf("detach %s %s force=%t", id, instance, force))
	v, now := e.volumes[id], time.Now()
	if v == nil {
		return answer("DetachVolume", "InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
	}
	if e.refuse != nil {
		if err := e.refuse("DetachVolume", cloud.AttachInput{VolumeID: id, InstanceID: instance}); err != nil {
			return err
		}
	}
	for _, f := range v.facts {
		a, there := f.at(now, id)
		if !there || f.instance != instance {
			continue
		}
		if a.State == cloud.Detaching && !force {
			break
		}
		if f.leaving.IsZero() {
			f.leaving = now
		}
		f.gone = now.Add(e.detaches)
		if force {
			f.gone = now.Add(time.Second)
		}
		return nil
	}
	return answer("DetachVolume", "IncorrectState", "Volume '%s' is in the '%s' state.", id, e.view(v, now).State)
}
