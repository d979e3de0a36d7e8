package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// binariesInNode is where a node has the directory of the cluster's programs.
const binariesInNode = "/opt/kubernetes/bin"

// enterRoot creates the node's root directory and makes it the root of this process's
// mount namespace. It contains the machine's programs and a writable overlay of its /etc.
// Everything else is the node's own and is in the state directory, on a real filesystem,
// which overlayfs and volumes need.
func enterRoot(l layout, node string, binaries string) error {
	root := l.nodeRoot(node)
	// These mounts must not appear in the supervisor's namespace.
	if err := propagate(unix.MS_PRIVATE); err != nil {
		return err
	}
	if err := makeDirectories(root); err != nil {
		return err
	}
	if err := bind(root, root); err != nil { // pivot_root requires a mount
		return err
	}
	if err := mountSystem(l, node); err != nil {
		return err
	}
	if err := bind(binaries, filepath.Join(root, binariesInNode)); err != nil {
		return err
	}
	return pivot(root)
}

func makeDirectories(root string) error {
	dirs := []string{
		"dev", "etc", "home", "mnt", "old-root", "opt", "proc", "root", "run", "srv", "sys", "usr",
		"var/lib/kubelet", "var/log/pods", "var/log/containers", "var/tmp", binariesInNode,
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", filepath.Join(root, "var/run")); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	tmp := filepath.Join(root, "tmp")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	return os.Chmod(tmp, 0o777|os.ModeSticky)
}

// mountSystem mounts the machine's and the kernel's directories in the new root.
func mountSystem(l layout, node string) error {
	root := l.nodeRoot(node)
	if err := bind("/usr", filepath.Join(root, "usr")); err != nil {
		return err
	}
	if err := mount("", filepath.Join(root, "usr"), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return err
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if err := provide("/"+name, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	if err := overlayEtc(l, node); err != nil {
		return err
	}
	return mountKernel(root)
}

// provide adds a directory of the machine to the new root. It may be a link into
// /usr, or absent.
func provide(source, target string) error {
	info, err := os.Lstat(source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		return bind(source, target)
	}
	to, err := os.Readlink(source)
	if err != nil {
		return err
	}
	if err := os.Symlink(to, target); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// overlayEtc mounts a writable overlay of the machine's /etc.
func overlayEtc(l layout, node string) error {
	upper, work := l.overlay(node, "etc"), l.overlay(node, "etc-work")
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	hosts := "127.0.0.1 localhost\n127.0.1.1 " + node + "\n"
	if err := os.WriteFile(filepath.Join(upper, "hosts"), []byte(hosts), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(upper, "hostname"), []byte(node+"\n"), 0o644); err != nil {
		return err
	}
	// No name server can be reached from the cluster.
	if err := os.WriteFile(filepath.Join(upper, "resolv.conf"), nil, 0o644); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=/etc,upperdir=%s,workdir=%s", upper, work)
	return mount("overlay", filepath.Join(l.nodeRoot(node), "etc"), "overlay", 0, options)
}

// mountKernel mounts the kernel's filesystems, as they are in the namespaces of
// this process.
func mountKernel(root string) error {
	// /proc/self/cgroup is still the machine's, and names the hierarchies.
	groups, err := hierarchies()
	if err != nil {
		return err
	}
	in := func(dir string) string { return filepath.Join(root, dir) }
	steps := []struct{ source, target, kind, options string }{
		{"proc", in("proc"), "proc", ""},
		{"sysfs", in("sys"), "sysfs", ""},
		{"devtmpfs", in("dev"), "devtmpfs", ""}, // the one of the machine: loop devices are for all
		{"devpts", in("dev/pts"), "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{"tmpfs", in("dev/shm"), "tmpfs", "mode=1777"},
	}
	for _, s := range steps {
		if err := mount(s.source, s.target, s.kind, 0, s.options); err != nil {
			return err
		}
	}
	return mountControlGroups(groups, in("sys/fs/cgroup"))
}

// pivot makes root the root directory and forgets the machine's. From here on,
// mounts travel between this namespace and those of pods that want it
// (Bidirectional), which is how a driver's mounts reach the kubelet.
func pivot(root string) error {
	if err := unix.PivotRoot(root, filepath.Join(root, "old-root")); err != nil {
		return fmt.Errorf("cluster: change the root directory to %s: %w", root, err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old-root", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cluster: detach the machine's root directory: %w", err)
	}
	return propagate(unix.MS_SHARED)
}
