package world

import (
	"errors"
	"slices"
	"sync"
)

// recorder implements Devices and only records the calls.
type recorder struct {
	mu    sync.Mutex
	steps []string
	busy  bool
	fails int // of the next attachments
}

func (r *recorder) note(step string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, step)
	return nil
}

func (r *recorder) has(step string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.steps, step)
}

func (r *recorder) setBusy(busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = busy
}

func (r *recorder) CreateVolume(id string, _ int32, _ DataSource) error {
	return r.note("create " + id)
}
func (r *recorder) GrowVolume(id string, _ int32) error { return r.note("grow " + id) }
func (r *recorder) DeleteVolume(id string) error        { return r.note("delete " + id) }
func (r *recorder) CreateSnapshot(id, _ string) error   { return r.note("snapshot " + id) }
func (r *recorder) CopySnapshot(id, _ string) error     { return r.note("copy " + id) }
func (r *recorder) DeleteSnapshot(id string) error      { return r.note("delete " + id) }
func (r *recorder) AddInstance(id string) error         { return r.note("add " + id) }
func (r *recorder) RemoveInstance(id string) error      { return r.note("remove " + id) }
func (r *recorder) Prune(_, _ []string) error           { return r.note("prune") }
func (r *recorder) Close() error                        { return r.note("close") }

func (r *recorder) Detach(_, volumeID string, force bool) error {
	r.mu.Lock()
	busy := r.busy
	r.mu.Unlock()
	if busy && !force {
		return ErrDeviceBusy
	}
	return r.note("detach " + volumeID)
}

func (r *recorder) Attach(a DeviceAttachment) error {
	r.mu.Lock()
	r.fails--
	failing := r.fails >= 0
	r.mu.Unlock()
	if failing {
		return errors.New("no loop device is free")
	}
	return r.note("attach " + a.VolumeID)
}
