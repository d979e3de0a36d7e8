package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// hierarchy is one tree of control groups: the only one of version 2, or one of
// several of version 1.
type hierarchy struct {
	dir         string // where it is mounted
	controllers string // the mount option of version 1, "" for version 2
}

func (h hierarchy) unified() bool { return h.controllers == "" }

// hierarchies lists the machine's hierarchies. If version 1 is in use, it skips a tree
// of version 2, which has no controllers then.
func hierarchies() ([]hierarchy, error) {
	var root unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &root); err != nil {
		return nil, fmt.Errorf("cluster: %s: %w", cgroupRoot, err)
	}
	if root.Type == unix.CGROUP2_SUPER_MAGIC {
		return []hierarchy{{dir: cgroupRoot}}, nil
	}
	file, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var found []hierarchy
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.SplitN(lines.Text(), ":", 3)
		if len(fields) == 3 && fields[1] != "" {
			dir := filepath.Join(cgroupRoot, strings.TrimPrefix(fields[1], "name="))
			found = append(found, hierarchy{dir: dir, controllers: fields[1]})
		}
	}
	return found, nil
}

// joinControlGroup puts a process, 0 for this one, into the group, which it
// makes in every hierarchy.
func joinControlGroup(group string, pid int) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := h.create(group); err != nil {
			return err
		}
		procs := filepath.Join(h.dir, group, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("cluster: join control group: %w", err)
		}
	}
	return nil
}

// create makes the group and those above it.
func (h hierarchy) create(group string) error {
	dir := h.dir
	for name := range strings.SplitSeq(group, "/") {
		if h.unified() {
			enableControllers(dir)
		}
		parent := dir
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cluster: make control group: %w", err)
		}
		if err := inheritCPUs(parent, dir); err != nil {
			return err
		}
	}
	return nil
}

// enableControllers enables the controllers of a version 2 group for its children. If
// that fails, the kubelet reports the missing controller.
func enableControllers(dir string) {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for name := range strings.FieldsSeq(string(available)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0)
	}
}

// inheritCPUs copies the parent's values to a new group of version 1's cpuset: a process
// cannot join while they are empty.
func inheritCPUs(parent, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) || len(strings.TrimSpace(string(own))) > 0 {
			continue
		}
		if err != nil {
			return err
		}
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), value, 0); err != nil {
			return fmt.Errorf("cluster: %s: %w", filepath.Join(dir, name), err)
		}
	}
	return nil
}

// removeControlGroup removes the group and all below it. Their processes have
// ended, but the kernel may report them for a moment longer.
func removeControlGroup(group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		top := filepath.Join(h.dir, group)
		var last error
		err := poll(time.Minute, "control group "+top+" to be empty", func() (bool, error) {
			last = removeGroups(top)
			return last == nil, nil
		})
		if err != nil {
			return errors.Join(err, last)
		}
	}
	return nil
}

// removeGroups removes a directory of groups, children first: the files in
// it disappear with it and cannot be removed.
func removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// mountControlGroups mounts the node's view of the hierarchies at target, in a new
// control group namespace: its own group is their root.
func mountControlGroups(all []hierarchy, target string) error {
	if len(all) == 1 && all[0].unified() {
		return mount("cgroup2", target, "cgroup2", 0, "")
	}
	if err := mount("tmpfs", target, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, h := range all {
		dir := filepath.Join(target, filepath.Base(h.dir))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		options := h.controllers
		if strings.HasPrefix(options, "name=") {
			options = "none," + options
		}
		if err := mount("cgroup", dir, "cgroup", 0, options); err != nil {
			return err
		}
	}
	return nil
}
