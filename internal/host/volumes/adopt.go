package volumes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// adoption has what Adopt compares: the records, the pods and the mounts. Each is read
// once for all volumes.
type adoption struct {
	boot   string
	uses   map[string]*store.VolumeUse // by name
	pods   map[types.UID]*corev1.Pod
	mounts mountTable
	// changed names the uses to be written; findings become log entries and events.
	changed  map[string]bool
	findings []adopted
}

// adopted is one difference between the records and the mounts.
type adopted struct {
	text   string
	path   string
	use    *store.VolumeUse
	target store.Target
}

// Adopt takes over the volumes that an earlier host left in use. It calls no driver. It
// keeps a record that agrees with the mount table, and marks the others as uncertain:
// the pod that needs such a volume publishes it again, and the controllers
// (NodeControllers) undo the others. After a reboot, all records are uncertain.
//
// It records the mounts in the host's directories that no record names, if the store
// has their volume. It keeps and reports the others. It removes the directories of pods
// that do not exist any more, if they are empty.
func (m *Manager) Adopt(ctx context.Context) error {
	a, err := m.readAdoption()
	if err != nil {
		return fmt.Errorf("take over what an earlier host left in use: %w", err)
	}
	for _, use := range a.uses {
		m.adoptUse(a, use)
	}
	if err := m.adoptMounts(a); err != nil {
		return err
	}
	if err := m.saveAdoption(a); err != nil {
		return err
	}
	m.reportAdoption(ctx, a)
	return m.removeEmptyPodDirectories(a)
}

func (m *Manager) readAdoption() (*adoption, error) {
	a := &adoption{
		boot: m.options.BootID, uses: map[string]*store.VolumeUse{},
		pods: map[types.UID]*corev1.Pod{}, changed: map[string]bool{},
	}
	err := m.view(func(tx *store.Tx) error {
		uses, err := tx.Uses().All()
		if err != nil {
			return err
		}
		for _, use := range uses {
			a.uses[use.Name] = use
		}
		pods, err := tx.Pods().All()
		for _, pod := range pods {
			a.pods[pod.UID] = pod
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	a.mounts, err = m.readMountTable(m.options.Paths.Root)
	return a, err
}

// adoptUse compares one record with the mounts.
func (m *Manager) adoptUse(a *adoption, use *store.VolumeUse) {
	if use.BootID != a.boot {
		a.reset(use)
		return
	}
	if use.Stage == store.PhaseDone && use.StageMounted && !a.mounts.has(use.StagingPath) {
		use.Stage = store.PhaseDoing
		a.changed[use.Name] = true
		a.report("its staging directory is not mounted any more; it is staged again when a pod needs it",
			use.StagingPath, use, store.Target{})
	}
	for path, target := range use.Targets {
		if target.Phase != store.PhaseDone || a.mounts.has(path) || use.Block && m.isBlockDevice(path) {
			continue
		}
		target.Phase = store.PhaseDoing
		use.Targets[path] = target
		a.changed[use.Name] = true
		a.report("it is not mounted any more; it is published again for its pod", path, use, target)
	}
}

// reset changes the record of another boot. The volume is not mounted, but the driver
// may have kept it staged or attached. So these steps are uncertain, and are repeated or
// undone.
func (a *adoption) reset(use *store.VolumeUse) {
	again := func(phase store.Phase) store.Phase {
		if phase == store.PhaseDone {
			return store.PhaseDoing
		}
		return phase
	}
	use.Attach, use.Stage = again(use.Attach), again(use.Stage)
	for path, target := range use.Targets {
		target.Phase, target.Device = again(target.Phase), ""
		use.Targets[path] = target
	}
	use.BootID = a.boot
	a.changed[use.Name] = true
}

func (a *adoption) report(text, path string, use *store.VolumeUse, target store.Target) {
	a.findings = append(a.findings, adopted{text: text, path: path, use: use, target: target})
}

func (m *Manager) saveAdoption(a *adoption) error {
	if len(a.changed) == 0 {
		return nil
	}
	err := m.update(func(tx *store.Tx) error {
		for name := range a.changed {
			if err := tx.Uses().Put(name, a.uses[name]); err != nil {
				return err
			}
		}
		return nil
	})
	return recording(err)
}

func (m *Manager) reportAdoption(ctx context.Context, a *adoption) {
	slices.SortFunc(a.findings, func(x, y adopted) int { return strings.Compare(x.path, y.path) })
	for _, n := range a.findings {
		if n.use == nil {
			m.logger.WarnContext(ctx, n.text, "path", n.path)
			continue
		}
		m.logger.WarnContext(ctx, "a volume was not found as it was left: "+n.text,
			"volume", n.use.Handle, "driver", n.use.Driver, "path", n.path)
		if n.target.Pod != "" {
			m.options.Record(journal.Notice{
				About:   journal.Ref{Kind: "Pod", Key: n.target.Pod, UID: string(n.target.PodUID)},
				Warning: true, Reason: "VolumeNotMounted", Message: fmt.Sprintf("%s: %s", n.use.Label, n.text),
			})
		}
	}
}

// Unadopted lists the mounts in the host's directories that no record names: another
// program mounted them, or the records were lost.
func (m *Manager) Unadopted() ([]string, error) {
	a, err := m.readAdoption()
	if err != nil {
		return nil, err
	}
	return m.unknownMounts(a), nil
}
