package inside

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// buildView makes the container's root in this process's own mount namespace
// and moves into it: a tmpfs that mirrors the machine's root by bind mounts, so
// that a mount path can get an entry there without one being made on the
// machine. Directories further down are mirrored in the same way only where a
// mount path needs a new entry in them.
func buildView(container Container) error {
	// Slave, not private: when the machine unmounts something, the copy in here
	// goes too, and nothing is kept busy; nothing goes the other way.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make the mount namespace a slave: %w", err)
	}
	view := view{root: container.Scratch, readOnly: container.ReadOnlyRoot, confined: container.confined()}
	sources, err := openSources(container)
	if err != nil {
		return err
	}
	hidden, err := hiddenPaths(container.Hide)
	if err != nil {
		return err
	}
	if container.Direct {
		hidden = nil
	}
	targets, err := view.plan(container.Mounts, hidden)
	if err != nil {
		return err
	}
	for _, directory := range container.Hide {
		if err := detachBelow(directory); err != nil {
			return err
		}
	}
	if err := view.mirrorAll(targets); err != nil {
		return err
	}
	covers, err := view.cover(hidden)
	if err != nil {
		return err
	}
	for _, target := range targets {
		if err := view.attach(target, sources[target.index]); err != nil {
			return err
		}
	}
	if err := seal(covers); err != nil {
		return err
	}
	return view.enter()
}

// detachBelow takes the copies of the machine's mounts below a directory out of
// this namespace. Where the machine's mounts are not shared (no systemd), what
// is unmounted there would stay mounted here: a volume that another pod has
// given back would be busy for as long as this container runs.
func detachBelow(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("list the mounts below %s: %w", dir, err)
	}
	slices.Reverse(mounts) // inner ones and later ones first
	for _, m := range mounts {
		if m.Mountpoint == dir {
			continue
		}
		err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // gone on the machine meanwhile
			return fmt.Errorf("hide the mount at %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}

// target is a mount with its resolved path.
type target struct {
	Mount
	index int
	// path is Target with the machine's symbolic links followed.
	path string
	// mirror is the directory that has to be mirrored because path's next
	// component does not exist in it; "" when path exists or lies in a volume.
	mirror string
}

// plan decides where each mount goes, outer ones first.
func (v view) plan(mounts []Mount, hidden []string) ([]target, error) {
	var targets []target
	for i, mount := range mounts {
		path, missing, err := resolve(mount.Target)
		if err != nil {
			return nil, fmt.Errorf("mount path %s: %w", mount.Target, err)
		}
		t := target{Mount: mount, index: i, path: path}
		if len(missing) > 0 {
			t.mirror = strings.TrimSuffix(path, "/"+filepath.Join(missing...))
			if t.mirror == "" {
				t.mirror = "/"
			}
		}
		if within(path, "/proc") {
			return nil, fmt.Errorf("mount path %s: nothing can be mounted in /proc", mount.Target)
		}
		targets = append(targets, t)
	}
	slices.SortStableFunc(targets, func(a, b target) int { return cmp.Compare(depth(a.path), depth(b.path)) })
	made := slices.Clone(hidden) // directories of the view that are empty at first
	if v.confined {
		made = append(made, "/dev")
	}
	for i := range targets {
		if slices.ContainsFunc(made, func(directory string) bool { return within(targets[i].path, directory) }) {
			targets[i].mirror = ""
		}
		for _, outer := range targets[:i] {
			if outer.path != targets[i].path && within(targets[i].path, outer.path) {
				targets[i].mirror = "" // inside a volume: the entry is made there
			}
		}
	}
	return targets, nil
}

func depth(path string) int { return strings.Count(strings.TrimSuffix(path, "/"), "/") }

func within(path, directory string) bool {
	return path == directory || strings.HasPrefix(path, strings.TrimSuffix(directory, "/")+"/")
}

// maximumLinks is how many symbolic links one path may lead through (path_resolution(7)).
const maximumLinks = 40

// resolve follows the machine's symbolic links as far as path exists and
// returns the rest, which does not.
func resolve(path string) (resolved string, missing []string, err error) {
	todo := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	resolved = "/"
	for links := 0; len(todo) > 0; {
		name := todo[0]
		next := filepath.Join(resolved, name)
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(append([]string{resolved}, todo...)...), todo, nil
		case err != nil:
			return "", nil, err
		case info.Mode()&fs.ModeSymlink == 0:
			resolved, todo = next, todo[1:]
			continue
		}
		if links++; links > maximumLinks {
			return "", nil, unix.ELOOP
		}
		link, err := os.Readlink(next)
		if err != nil {
			return "", nil, err
		}
		if filepath.IsAbs(link) {
			resolved = "/"
		}
		todo = append(strings.Split(strings.Trim(filepath.Clean(link), "/"), "/"), todo[1:]...)
		todo = slices.DeleteFunc(todo, func(part string) bool { return part == "" || part == "." })
	}
	return resolved, nil, nil
}

// view is a root under construction.
type view struct {
	root     string // where it is mounted for now
	readOnly bool
	confined bool
}

// open opens the root where it is now; no other user may write above it.
func (v view) open() (*os.File, error) {
	descriptor, err := unix.Open(v.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the new root: %w", err)
	}
	return os.NewFile(uintptr(descriptor), "/"), nil
}

// mirrorAll makes the new root and the mirrors below it, outer ones first.
func (v view) mirrorAll(targets []target) error {
	scratch, err := v.open()
	if err != nil {
		return err
	}
	defer func() { _ = scratch.Close() }()
	root, err := v.mirror("/", scratch)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var directories []string
	for _, target := range targets {
		if target.mirror != "" && target.mirror != "/" {
			directories = append(directories, target.mirror)
		}
	}
	slices.SortFunc(directories, func(a, b string) int { return cmp.Compare(depth(a), depth(b)) })
	for _, directory := range slices.Compact(directories) {
		if err := v.mirrorBelow(root, directory); err != nil {
			return err
		}
	}
	return nil
}

// mirrorBelow mirrors a directory of the machine at the same path of the view.
func (v view) mirrorBelow(root *os.File, directory string) error {
	target, err := openBeneath(int(root.Fd()), strings.TrimPrefix(directory, "/"))
	if err != nil {
		return fmt.Errorf("mirror %s: %w", directory, err)
	}
	defer func() { _ = target.Close() }()
	mirror, err := v.mirror(directory, target)
	if err != nil {
		return err
	}
	return mirror.Close()
}

// enter makes the view the root and releases the machine's.
func (v view) enter() error {
	if v.readOnly {
		if err := unix.MountSetattr(unix.AT_FDCWD, v.root, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("make the root read-only: %w", err)
		}
	}
	if err := os.Chdir(v.root); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	// Both at one path: the old root is then mounted over the new one and can
	// be removed without a directory for it (pivot_root(2), "pivot_root(".", ".")").
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	return os.Chdir("/")
}
