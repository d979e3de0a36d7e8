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

// errNoAnswer is of a filesystem that does not answer in time.
var errNoAnswer = fmt.Errorf("the filesystem did not answer within %s", inspectTimeout)

// MountCheck is a mounted volume of a pod; Err is nil if it answers.
type MountCheck struct {
	Volume, Driver, Path string
	Err                  error
}

// inspections are the system calls under way, by path: a filesystem whose server
// hangs keeps one thread, however often it is asked.
type inspections struct {
	mu      sync.Mutex
	running map[string]*inspection
}

type inspection struct {
	done chan struct{}
	err  error // once done
}

// CheckMounts asks the filesystems and devices that are published for a pod for
// their attributes. A pod that is not there has none.
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
		group.Go(func() { checks[i].Err = m.inspections.run(ctx, checks[i].Path, block[i]) })
	}
	group.Wait()
	return checks, err
}

// run joins an inspection of the path that is under way, or starts one.
func (i *inspections) run(ctx context.Context, path string, block bool) error {
	i.mu.Lock()
	current := i.running[path]
	if current == nil {
		current = &inspection{done: make(chan struct{})}
		if i.running == nil {
			i.running = map[string]*inspection{}
		}
		i.running[path] = current
		go func() {
			current.err = answers(path, block)
			i.mu.Lock()
			delete(i.running, path)
			i.mu.Unlock()
			close(current.done)
		}()
	}
	i.mu.Unlock()
	select {
	case <-current.done:
		return current.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errNoAnswer
		}
		return ctx.Err()
	}
}
