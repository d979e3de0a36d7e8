package volumes

import (
	"context"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

// Activity is a mounted volume with the counters of its block device.
type Activity struct {
	Name           string // of the PersistentVolume; of an inline volume, that of its use
	Driver, Handle string
	Claim          string   // namespace/name; "" for an inline volume
	Pods           []string // namespace/name
	// Device is the name of the block device, such as loop3, "" for a volume without one,
	// such as a network's filesystem.
	Device   string
	Counters blockdev.Counters
	// Bytes is nil if the driver has not said yet, or does not say, how full the volume is.
	Bytes *Usage
}

// Activities returns the mounted volumes. Counters are read now. How full volumes are is
// asked of the drivers in the background, and is up to figuresAge old: a driver that hangs
// delays the first answer by figuresWait.
func (m *Manager) Activities() ([]Activity, error) {
	var uses []*store.VolumeUse
	all := []Activity{}
	err := m.view(func(tx *store.Tx) (err error) {
		every, err := tx.Uses().All()
		if err != nil {
			return err
		}
		for _, use := range every {
			one := Activity{Name: use.SpecName, Driver: use.Driver, Handle: use.Handle, Pods: podsOf(use)}
			if !use.Inline {
				if one.Claim, err = claimOfVolume(tx, use.SpecName); err != nil {
					return err
				}
			}
			uses, all = append(uses, use), append(all, one)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	known := m.figures.usage.current(m.usageQuestions(uses))
	var devices deviceFinder
	for i, use := range uses {
		all[i].Bytes = known[use.Name]
		if name := devices.of(use); name != "" {
			// A device that went away meanwhile has no counters.
			if counters, err := blockdev.NamedCounters(name); err == nil {
				all[i].Device, all[i].Counters = name, counters
			}
		}
	}
	return all, nil
}

func claimOfVolume(tx *store.Tx, name string) (string, error) {
	pv, err := tx.Volumes().Get(name)
	if err != nil || pv == nil || pv.Spec.ClaimRef == nil {
		return "", err
	}
	return store.Key(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name), nil
}

func podsOf(use *store.VolumeUse) []string {
	pods := []string{}
	for _, target := range use.Targets {
		pods = append(pods, target.Pod)
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// usageQuestions ask how full the mounted volumes are.
func (m *Manager) usageQuestions(uses []*store.VolumeUse) []question[Usage] {
	var questions []question[Usage]
	for _, use := range uses {
		path, _ := publishedFor(use, "")
		if path == "" {
			continue
		}
		questions = append(questions, question[Usage]{key: use.Name, driver: use.Driver,
			ask: func(ctx context.Context) (*Usage, error) {
				var stats Stats
				err := m.askStats(ctx, use, path, &stats)
				return &stats.Bytes, err
			}})
	}
	return questions
}
