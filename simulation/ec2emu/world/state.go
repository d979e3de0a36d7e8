package world

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

const stateFile = "world.json"

// load reads the state of the directory, if it has one.
func (w *World) load(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state of the world: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("state of the world: %w", err)
	}
	w.store = root
	data, err := root.ReadFile(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("state of the world: %w", err)
	}
	restored := newState()
	if err := json.Unmarshal(data, &restored); err != nil {
		return fmt.Errorf("state of the world: %s is damaged: %w; remove %s to begin anew", stateFile, err, dir)
	}
	w.state, w.restored = restored, true
	heap.Init(&w.Events)
	return nil
}

// save makes the state durable if it changed.
func (w *World) save() error {
	if !w.dirty || w.store == nil || w.closed {
		return nil
	}
	data, err := json.Marshal(&w.state)
	if err != nil {
		return fmt.Errorf("save the state of the world: %w", err)
	}
	if err := durable.WriteFile(w.store, stateFile, data, 0o600); err != nil {
		return fmt.Errorf("save the state of the world: %w", err)
	}
	w.dirty = false
	return nil
}

func (w *World) closeStore() error {
	if w.store == nil {
		return nil
	}
	err := w.store.Close()
	w.store = nil
	return err
}
