package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
)

// drainFile is next to the state of a container and names the last attempt that a drain
// ended. How that attempt ended is unknown, as after a power loss: a command that
// handles SIGTERM and exits with 0 has not completed its work.
const drainFile = "drained.json"

// drainRecord is the content of drainFile.
type drainRecord struct{ Attempt int }

// recordDrain records that a drain ends the attempts that run, before they get a signal.
func (m *Manager) recordDrain(r *run) error {
	if !m.draining.Load() {
		return nil
	}
	r.mu.Lock()
	var running []*container
	for _, c := range r.containers {
		if c.process != nil && (c.drained == nil || c.drained.Attempt != c.state.Attempt) {
			running = append(running, c)
		}
	}
	r.mu.Unlock()
	for _, c := range running {
		if err := m.writeDrain(r, c); err != nil {
			return fmt.Errorf("container %q: record that a drain ends it: %w", c.name, err)
		}
	}
	return m.hit("drained")
}

func (m *Manager) writeDrain(r *run, c *container) error {
	directory := filepath.Join(m.options.Paths.Pod(r.uid), runDirectory, c.name)
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return err
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	r.mu.Lock()
	record := drainRecord{Attempt: c.state.Attempt}
	r.mu.Unlock()
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(root, drainFile, data, 0o600); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.drained = &record
	c.state = record.apply(c.state) // it may have ended meanwhile
	return nil
}

// readDrain returns the record of the last drain that ended an attempt, nil if there
// is none.
func (m *Manager) readDrain(r *run, name string) (*drainRecord, error) {
	file := filepath.Join(m.options.Paths.Pod(r.uid), runDirectory, name, drainFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which attempt a drain ended: %w", err)
	}
	var record drainRecord
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", file, err)
	}
	return &record, nil
}

// apply makes the end of the attempt an unknown one.
func (d *drainRecord) apply(state workload.State) workload.State {
	if d != nil {
		state.Ended, state.Previous = d.unknown(state.Ended), d.unknown(state.Previous)
	}
	return state
}

func (d *drainRecord) unknown(ended *workload.Ended) *workload.Ended {
	if ended == nil || ended.Attempt != d.Attempt {
		return ended
	}
	return &workload.Ended{
		Attempt: ended.Attempt, Started: ended.Started, Finished: ended.Finished,
		ExitCode: inside.LostCode, Reason: workload.ReasonUnknown,
	}
}
