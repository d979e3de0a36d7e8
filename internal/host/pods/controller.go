package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// ControllerName is that of the pods' controller.
const ControllerName = "pods"

// Controller brings pods to their desired state. Its keys are namespace/name.
func (m *Manager) Controller() reconcile.Controller {
	return reconcile.Controller{
		Name: ControllerName, All: m.all, Keys: m.keys, Do: m.do,
		// One partition a pod: a hung driver must not block other pods.
		Partition: func(key string) string { return key },
	}
}

// all returns the pods of the store, and pods of an earlier host that the store lacks.
func (m *Manager) all(tx *store.Tx) ([]string, error) {
	pods, err := tx.Pods().All()
	if err != nil {
		return nil, err
	}
	var keys []string
	known := map[types.UID]bool{}
	for _, pod := range pods {
		keys = append(keys, store.KeyOf(pod))
		known[pod.UID] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, orphan := range m.findOrphans(func(uid types.UID) bool { return known[uid] || m.runs[uid] != nil }) {
		key := store.KeyOf(orphan)
		m.orphans[key] = append(m.orphans[key], orphan)
		keys = append(keys, key)
	}
	for _, r := range m.runs {
		keys = append(keys, r.key)
	}
	return keys, nil
}

// findOrphans reads the records of pods for which known is false.
func (m *Manager) findOrphans(known func(types.UID) bool) []*corev1.Pod {
	directory := filepath.Dir(m.options.Paths.Pod("x"))
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.logger.Error("the directory of pods that an earlier host ran cannot be read", "directory", directory, "error", err)
	}
	var orphans []*corev1.Pod
	for _, entry := range entries {
		uid := types.UID(entry.Name())
		if known(uid) {
			continue
		}
		pod, err := m.readRecord(uid)
		switch {
		case err == nil && pod.UID == uid:
			orphans = append(orphans, pod)
		case !errors.Is(err, fs.ErrNotExist):
			m.logger.Error("the record of a pod that an earlier host ran cannot be read; its files stay as they are",
				"uid", uid, "error", err)
		}
	}
	return orphans
}

func (m *Manager) readRecord(uid types.UID) (*corev1.Pod, error) {
	data, err := os.ReadFile(filepath.Join(m.options.Paths.Pod(uid), runDirectory, recordFile))
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	return pod, json.Unmarshal(data, pod)
}

// writeRecord writes the pod to its directory before anything else is done for
// it, so that a later host finds it also without its object.
func (m *Manager) writeRecord(pod *corev1.Pod) error {
	directory := filepath.Join(m.options.Paths.Pod(pod.UID), runDirectory)
	if _, err := os.Stat(filepath.Join(directory, recordFile)); err == nil {
		return nil
	}
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return fmt.Errorf("record the pod: %w", err)
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return fmt.Errorf("record the pod: %w", err)
	}
	defer func() { _ = root.Close() }()
	data, err := json.Marshal(withoutStatus(pod))
	if err != nil {
		return fmt.Errorf("record the pod: %w", err)
	}
	return durable.WriteFile(root, recordFile, data, 0o600)
}

// keys: a pod's own changes, and those of the objects that it waits for.
func (m *Manager) keys(change store.Change) []string {
	switch change.Kind.Kind {
	case "Pod":
		keys := []string{change.Key}
		if change.Deleted {
			// Its volumes are free: others may have waited for them.
			return append(keys, m.allWaiting()...)
		}
		return append(keys, m.waitingFor("Pod", change.Key)...)
	case "CSIDriver", "CSINode":
		return m.allWaiting()
	}
	return m.waitingFor(change.Kind.Kind, change.Key)
}

func (m *Manager) waitingFor(kind, key string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.waiting[journal.Ref{Kind: kind, Key: key}]))
}

func (m *Manager) allWaiting() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]bool{}
	for _, keys := range m.waiting {
		for key := range keys {
			all[key] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// await replaces the list of objects that a pod waits for.
func (m *Manager) await(key string, on []journal.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ref, keys := range m.waiting {
		if delete(keys, key); len(keys) == 0 {
			delete(m.waiting, ref)
		}
	}
	for _, ref := range on {
		ref.UID = ""
		if m.waiting[ref] == nil {
			m.waiting[ref] = map[string]bool{}
		}
		m.waiting[ref][key] = true
	}
}

// do reconciles one pod. It first removes an earlier pod of the same name.
func (m *Manager) do(ctx context.Context, key string) (time.Duration, error) {
	pod, err := m.get(key)
	if err != nil {
		return 0, err
	}
	if again, err := m.endOthers(ctx, key, pod); err != nil || again > 0 || pod == nil {
		return again, err
	}
	r, err := m.runOf(pod)
	if errors.Is(err, workload.ErrBusy) {
		return workload.BusyPause, nil
	}
	if err != nil {
		return 0, err
	}
	again, _, err := m.advance(ctx, r)
	return again, err
}

// endOthers stops and removes other pods that had this key. No change of an
// object follows the end of their containers, so it waits for the end itself.
func (m *Manager) endOthers(ctx context.Context, key string, pod *corev1.Pod) (time.Duration, error) {
	others, err := m.others(key, pod)
	if errors.Is(err, workload.ErrBusy) {
		return workload.BusyPause, nil
	}
	if err != nil {
		return 0, err
	}
	for _, other := range others {
		for {
			changed := other.changes()
			again, done, err := m.advance(ctx, other)
			if err != nil {
				return 0, err
			}
			if done {
				break
			}
			if !wait(ctx, changed, again) {
				return 0, ctx.Err()
			}
		}
	}
	return 0, nil
}

// wait returns at a change, or after a time that is not 0. It is false when the
// context ended.
func wait(ctx context.Context, changed <-chan struct{}, after time.Duration) bool {
	var expired <-chan time.Time
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-changed:
	case <-expired:
	case <-ctx.Done():
		return false
	}
	return true
}

func (m *Manager) others(key string, pod *corev1.Pod) ([]*run, error) {
	isOther := func(uid types.UID) bool { return pod == nil || uid != pod.UID }
	m.mu.Lock()
	orphans := m.orphans[key]
	m.mu.Unlock()
	for _, record := range orphans {
		if isOther(record.UID) {
			if _, err := m.runOf(record); err != nil {
				return nil, err
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.orphans, key)
	var list []*run
	for _, r := range m.runs {
		if r.key == key && isOther(r.uid) {
			list = append(list, r)
		}
	}
	return list, nil
}
