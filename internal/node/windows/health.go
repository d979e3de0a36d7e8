package windows

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// Reasons of problems that occur on Windows only; the others are those of package node.
const (
	ReasonDiskOffline  = "DiskOffline"
	ReasonDiskReadOnly = "DiskReadOnly"
	ReasonDiskFailed   = "DiskFailed"
)

// VolumeHealth lists the problems of a volume on this machine; none for a healthy one.
// The paths may be empty. A path at which the volume is not mounted is not a problem.
// ErrNotFound if the volume is neither on a disk nor at a path.
func (e *Engine) VolumeHealth(
	ctx context.Context, volumeID, volumePath, stagingPath string,
) ([]backend.HealthProblem, error) {
	if err := checkID(volumeID); err != nil {
		return nil, err
	}
	var candidates []string
	for field, text := range map[string]string{"volume_path": volumePath, "staging_target_path": stagingPath} {
		if text == "" {
			continue
		}
		path, err := e.path(field, text)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, path)
	}
	key := "health " + volumeID + " " + volumePath
	examine := func(ctx context.Context) ([]backend.HealthProblem, error) {
		return e.examine(ctx, volumeID, candidates)
	}
	found, err := concurrency.RunResult(ctx, e.calls, "health of volume "+volumeID, []string{key}, examine)
	if errors.Is(err, context.DeadlineExceeded) {
		return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: node.ReasonFilesystemFailed,
			Message: "the filesystem or its disk does not answer"}}, nil
	}
	return found, err
}

func (e *Engine) examine(
	ctx context.Context, volumeID string, candidates []string,
) (problems []backend.HealthProblem, err error) {
	disks, err := e.host.Disks.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the disks: %w", err)
	}
	var disk *api.Disk
	var unidentified error
	for _, one := range disks {
		switch {
		case e.backend.IsVolume(volumeID, nil, one):
			disk = &one
		case one.IsUnidentified():
			unidentified = unread(one)
		}
	}
	found := false
	for _, path := range candidates {
		there, err := e.at(ctx, volumeID, path, nil)
		switch {
		case err != nil:
			return nil, err
		case there.matches && !found:
			found = true
			problems = append(problems, e.examineVolume(ctx, there.volume)...)
		case there.volume != "" && there.disk == nil && disk == nil && unidentified == nil:
			return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: node.ReasonDeviceMissing,
				Message: "the disk of the volume at " + path + " is gone; unpublish and stage the volume again"}}, nil
		}
	}
	switch {
	case disk == nil && unidentified != nil:
		return nil, fmt.Errorf("%w: %w: %w", backend.ErrUnavailable, errUnread, unidentified)
	case disk == nil:
		return nil, fmt.Errorf("%w: the volume is not on this machine", backend.ErrNotFound)
	}
	return append(problems, examineDisk(*disk, found)...), nil
}

// examineDisk returns the problems of a disk. A disk that is not staged may be
// offline.
func examineDisk(disk api.Disk, mounted bool) []backend.HealthProblem {
	switch {
	case disk.Problem != nil:
		return []backend.HealthProblem{{Kind: backend.HealthDegraded, Reason: ReasonDiskFailed,
			Message: fmt.Sprintf("disk %d cannot be read: %v", disk.Number, disk.Problem)}}
	case mounted && !disk.Online:
		return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: ReasonDiskOffline,
			Message: fmt.Sprintf("disk %d is offline though the volume is mounted; unpublish and stage the volume again", disk.Number)}}
	case mounted && disk.ReadOnly:
		return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: ReasonDiskReadOnly,
			Message: fmt.Sprintf("disk %d is read-only; stage the volume again, which makes the disk writable", disk.Number)}}
	}
	return nil
}

func (e *Engine) examineVolume(ctx context.Context, volume string) []backend.HealthProblem {
	found, err := e.host.Volumes.FileSystem(ctx, volume)
	if err == nil && found == "" {
		err = errors.New("it has no filesystem that Windows recognises")
	}
	if err == nil {
		_, err = e.host.Volumes.Stats(ctx, volume)
	}
	if err == nil {
		return nil
	}
	return []backend.HealthProblem{{Kind: backend.HealthInaccessible, Reason: node.ReasonFilesystemFailed,
		Message: fmt.Sprintf("%s cannot be read: %v; see the System event log", volume, err)}}
}
