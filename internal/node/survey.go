package node

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/usage"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

const (
	// surveyTimeout is how long a filesystem may take to answer.
	surveyTimeout = 5 * time.Second
	// surveyAtOnce is how many are asked at the same time.
	surveyAtOnce = 8
)

// Surveys reports whether the backend can list its volumes, which Survey needs.
func (e *Engine) Surveys() bool {
	_, ok := e.backend.(backend.NodeVolumeLister)
	return ok
}

// Survey lists the volumes of this machine with their states and conditions. A filesystem
// that does not answer costs surveyTimeout, and a goroutine until it does.
func (e *Engine) Survey(ctx context.Context) []usage.Volume {
	lister, ok := e.backend.(backend.NodeVolumeLister)
	if !ok {
		return nil
	}
	listed, err := lister.NodeVolumes(ctx)
	if err != nil {
		e.log.Warn("the volumes of this machine cannot be listed; their metrics are not current", "error", err)
		return nil
	}
	table, err := e.mounts()
	if err != nil {
		e.log.Warn("the mounts cannot be listed; the metrics of volumes are not current", "error", err)
		return nil
	}
	s := survey{engine: e, table: table, byDevice: mount.ByDevice(table), common: e.storageReasons(ctx)}
	found := make([]usage.Volume, len(listed))
	group := errgroup.Group{}
	group.SetLimit(surveyAtOnce)
	for i, volume := range listed {
		found[i] = usage.Volume{ID: volume.ID, State: usage.Available, Size: volume.Size, Used: -1, Frozen: volume.Frozen}
		if len(volume.Devices) > 0 {
			group.Go(func() error {
				s.inspect(ctx, volume, &found[i])
				return nil
			})
		}
	}
	_ = group.Wait() // has no error
	return found
}

// storageReasons are the reasons of problems that are not one volume's own.
func (e *Engine) storageReasons(ctx context.Context) (reasons []string) {
	problems, err := e.StorageHealth(ctx)
	if err != nil {
		return nil
	}
	for _, problem := range problems {
		reasons = append(reasons, problem.Reason)
	}
	return reasons
}

// survey is one look at all volumes.
type survey struct {
	engine   *Engine
	table    []*mountinfo.Info
	byDevice map[uint64][]*mountinfo.Info
	common   []string // reasons of problems of the storage
}

func (s *survey) inspect(ctx context.Context, volume backend.NodeVolume, found *usage.Volume) {
	paths, raw := s.pathsOf(volume.Devices)
	found.State, found.Device = stateOf(volume, len(paths)), filepath.Base(volume.Devices[0].Path)
	if len(paths) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	// One at a time: a filesystem that hangs has one goroutine, however often it is asked.
	answer, err := concurrency.RunResult(ctx, s.engine.calls, "survey of volume "+volume.ID, []string{"survey " + volume.ID},
		func(ctx context.Context) (surveyed, error) { return s.ask(ctx, volume.ID, paths[0], raw), nil })
	if err != nil {
		found.Unresponsive = errors.Is(err, context.DeadlineExceeded) || errors.Is(err, backend.ErrBusy)
		return
	}
	found.Used, found.Conditions = answer.used, answer.conditions
}

// pathsOf returns where a volume is mounted, or where its device is shown.
func (s *survey) pathsOf(devices []backend.Device) (paths []string, raw bool) {
	add := func(mounts []*mountinfo.Info) {
		for _, m := range mounts {
			if !slices.Contains(paths, m.Mountpoint) {
				paths = append(paths, m.Mountpoint)
			}
		}
	}
	for _, device := range devices {
		add(s.byDevice[device.Number])
	}
	if len(paths) > 0 {
		return paths, false
	}
	for _, device := range devices {
		add(mount.OfNode(s.table, device.Path, device.Number))
	}
	return paths, true
}

// stateOf is the state of a volume that has a device and is mounted at so many paths. The
// first is that of its staging, but for an inline volume.
func stateOf(volume backend.NodeVolume, paths int) usage.VolumeState {
	switch {
	case paths == 0:
		return usage.Attached
	case paths > 1 || volume.Inline:
		return usage.Published
	}
	return usage.Staged
}

// surveyed is what a volume answers.
type surveyed struct {
	used       int64
	conditions []string
}

// ask asks a mounted volume how it is. It may hang.
func (s *survey) ask(ctx context.Context, id, path string, raw bool) surveyed {
	answer := surveyed{used: -1}
	var found problems
	if reporter, ok := s.engine.backend.(backend.NodeHealthReporter); ok {
		if reported, err := reporter.NodeVolumeHealth(ctx, id); err == nil {
			found.add(reported...)
		}
	}
	if !raw {
		answer.used = s.askFilesystem(&found, path)
	}
	for _, problem := range found.list {
		if !slices.Contains(s.common, problem.Reason) && !slices.Contains(answer.conditions, problem.Reason) {
			answer.conditions = append(answer.conditions, problem.Reason)
		}
	}
	return answer
}

// askFilesystem returns the used bytes of the filesystem at a path, negative if unknown.
func (s *survey) askFilesystem(found *problems, path string) int64 {
	node, err := s.engine.open("volume_path", path)
	if err != nil {
		return -1 // unmounted meanwhile, or not below the kubelet's directory
	}
	defer closeQuietly(node)
	state, err := node.FilesystemStateIn(s.table)
	found.addState(state, err, path)
	stats, err := fs.ReadStats(node.File())
	if err != nil {
		return -1
	}
	return stats.Bytes.Used
}
