package volumes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// inspectTimeout is how long a filesystem may take to answer.
const inspectTimeout = 3 * time.Second

// errNoAnswer means that a filesystem did not answer in time.
var errNoAnswer = fmt.Errorf("the filesystem did not answer within %s", inspectTimeout)

// MountCheck is a mounted volume of a pod; Err is nil if it answers.
type MountCheck struct {
	Volume, Driver, Path string
	Err                  error
}

// CheckMounts asks the filesystems and devices that are published for a pod for their
// attributes. The result is empty if the pod does not exist.
func (m *Manager) CheckMounts(ctx context.Context, podKey string) (checks []MountCheck, err error) {
	var block []bool
	err = m.view(func(tx *store.Tx) error {
		pod, err := tx.Pods().Get(podKey)
		if err != nil || pod == nil {
			return err
		}
		uses, err := tx.Uses().All()
		for _, use := range uses {
			for _, path := range slices.Sorted(maps.Keys(use.Targets)) {
				target := use.Targets[path]
				if target.PodUID == pod.UID && target.Phase == store.PhaseDone {
					checks = append(checks, MountCheck{Volume: target.VolumeName, Driver: use.Driver, Path: path})
					block = append(block, use.Block)
				}
			}
		}
		return err
	})
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	var group sync.WaitGroup
	for i := range checks {
		group.Go(func() { checks[i].Err = m.inspect(ctx, checks[i].Path, block[i]) })
	}
	group.Wait()
	return checks, err
}

// inspect asks the filesystem at a path, or joins the call that does so: a filesystem
// whose server hangs blocks one thread only.
func (m *Manager) inspect(ctx context.Context, path string, block bool) error {
	_, err := m.inspections.Do(ctx, path, func() (struct{}, error) { return struct{}{}, m.answers(path, block) })
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, ctx.Err()) {
		return errNoAnswer
	}
	return err
}
