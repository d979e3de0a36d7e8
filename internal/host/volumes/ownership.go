package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// The bits that the kubelet adds for the group (pkg/volume/volume_linux.go):
// read and write, and for directories also execute and setgid.
const (
	groupFileMode      = 0o660
	groupDirectoryMode = 0o110
)

// setOwnership changes the group of the volume's files to the pod's fsGroup, unless the
// driver does that.
func (m *Manager) setOwnership(ctx context.Context, toMount volumeToMount) error {
	security := toMount.pod.Spec.SecurityContext
	if security == nil || security.FSGroup == nil || toMount.use.Block || toMount.readOnly {
		return nil
	}
	object, err := m.driverOf(toMount.use.Driver)
	if err != nil {
		return err
	}
	policy := claim.FSGroupPolicy(object)
	if !claim.AppliesFSGroup(policy, toMount.use.FSType, toMount.use.Modes, toMount.use.Inline) {
		if policy == storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy && toMount.use.FSType == "" {
			m.recordEventf(toMount.podRef(), false, "FSGroupNotApplied",
				"volume %q: its files are not given to group %d: neither its class (parameter csi.storage.k8s.io/fstype) "+
					"names a filesystem nor says the CSIDriver object of %s fsGroupPolicy: File",
				toMount.volumeName, *security.FSGroup, toMount.use.Driver)
		}
		return nil
	}
	driver, err := m.options.Drivers.Driver(toMount.use.Driver)
	if err != nil {
		return err
	}
	can, err := driver.Client.NodeCapabilities(ctx)
	if err != nil || can.MountGroup {
		return err
	}
	change := security.FSGroupChangePolicy
	onMismatch := change != nil && *change == corev1.FSGroupChangeOnRootMismatch
	slow := walkProgress{report: func(files int) {
		m.recordEventf(toMount.podRef(), true, "VolumePermissionChangeInProgress",
			"volume %q: its files are given to group %d, %d so far; fsGroupChangePolicy: OnRootMismatch does that once only",
			toMount.volumeName, *security.FSGroup, files)
	}, next: time.Now().Add(firstProgress)}
	of := toMount.subject()
	return m.stepOf(ctx, of, StepOwnership, onward(claim.CallNode), func(ctx context.Context) (string, error) {
		return "", setGroup(ctx, toMount.target, int(*security.FSGroup), onMismatch, slow.file)
	})
}

// When events report a slow walk (pkg/volume/volume_linux.go).
const (
	firstProgress = 30 * time.Second
	nextProgress  = time.Minute
)

// walkProgress reports a slow walk. The walk itself checks the time: a hung walk makes no
// progress.
type walkProgress struct {
	report func(files int)
	next   time.Time
	files  int
}

func (p *walkProgress) file() {
	p.files++
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(nextProgress)
		p.report(p.files)
	}
}

// setGroup walks by descriptors that cannot leave the volume: another pod may write to it
// at this moment. With onMismatch, it does nothing if the root directory has the group
// and mode.
func setGroup(ctx context.Context, path string, group int, onMismatch bool, file func()) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Lstat(".")
	if err != nil {
		return err
	}
	if onMismatch && fits(info, group) {
		return nil
	}
	// The root directory comes last: its mode and group mark the rest as done.
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed meanwhile
		case err != nil:
			return err
		case name == ".":
			return nil
		}
		file()
		return give(root, name, entry.Type(), group)
	})
	if err != nil {
		return fmt.Errorf("give the files to group %d: %w", group, err)
	}
	return give(root, ".", fs.ModeDir, group)
}

func give(root *os.Root, name string, kind fs.FileMode, group int) error {
	if err := root.Lchown(name, -1, group); err != nil {
		return ignoreAbsent(err)
	}
	if kind&fs.ModeSymlink != 0 {
		return nil
	}
	info, err := root.Lstat(name)
	if err != nil {
		return ignoreAbsent(err)
	}
	if desired := groupMode(info); desired != info.Mode() && info.Mode()&fs.ModeSymlink == 0 {
		return ignoreAbsent(root.Chmod(name, desired))
	}
	return nil
}

func groupMode(info fs.FileInfo) fs.FileMode {
	mode := info.Mode() | groupFileMode
	if info.IsDir() {
		mode |= groupDirectoryMode | fs.ModeSetgid
	}
	return mode
}

func fits(info fs.FileInfo, group int) bool {
	owner, known := groupOf(info)
	return known && owner == group && groupMode(info) == info.Mode()
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
