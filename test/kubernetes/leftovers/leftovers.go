// Package leftovers compares a machine's resources before and after a test: an ended
// cluster must leave none. It sees the whole machine, so nothing but other clusters,
// and containers, may make such things meanwhile.
package leftovers

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// State is what there is, each as a line that a person can read.
type State map[string]bool

// Take reads the machine's state: processes in other PID namespaces, mounts,
// loop devices, network devices, named network namespaces and control groups.
func Take() (State, error) {
	state := make(State)
	var failed []error
	for _, list := range []func() ([]string, error){processes, mounts, loops, links, networks, controlGroups} {
		lines, err := list()
		failed = append(failed, err)
		for _, line := range lines {
			state[line] = true
		}
	}
	return state, errors.Join(failed...)
}

// Since lists the resources that have appeared since.
func (s State) Since(before State) []string {
	var added []string
	for line := range s {
		if !before[line] {
			added = append(added, line)
		}
	}
	slices.Sort(added)
	return added
}

// Watch has the state of the machine before a test.
type Watch struct {
	// Cluster is the ID of the test's cluster. With it, another cluster's resources do
	// not count.
	Cluster string

	before State
}

// Start looks at the machine, and again after all that the test cleans up
// later: it fails the test if that has left something. Call it first.
func Start(t *testing.T) *Watch {
	t.Helper()
	before, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	w := &Watch{before: before}
	t.Cleanup(func() { w.check(t) })
	return w
}

func (w *Watch) check(t *testing.T) {
	t.Helper()
	var added []string
	// Other programs make short-lived mounts and processes, too, and an ended process
	// can stay for many seconds on a busy machine.
	for range 600 {
		now, err := Take()
		if err != nil {
			t.Fatal(err)
		}
		if added = slices.DeleteFunc(now.Since(w.before), w.foreign); len(added) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("left on the machine:\n%s", strings.Join(added, "\n"))
}

// foreign lists the resources of others than this test's cluster. Control groups and
// links of another one have its ID, and the files of its loop devices are still there,
// which those of a cluster that has been taken down are not. A process of no cluster's
// control group belongs to another container.
func (w *Watch) foreign(line string) bool {
	if strings.HasPrefix(line, "process ") && !strings.Contains(line, "holdfast-cluster-") {
		return true
	}
	if w.Cluster == "" || strings.Contains(line, w.Cluster) {
		return false
	}
	if strings.HasPrefix(line, "loop device ") {
		return !strings.HasSuffix(line, " (deleted)")
	}
	return strings.Contains(line, "holdfast-cluster-") || strings.HasPrefix(line, "network device hf-")
}

// process is one in another PID namespace than this one.
type process struct{ pid, namespace, args, group string }

// processes lists the processes in other PID namespaces than this one, with
// the control group that shows which cluster they belong to. What has been put into a
// cluster's namespaces from outside, as by nsenter, has the control group of one
// that is there already.
func processes() ([]string, error) {
	all, err := namespaced()
	if err != nil {
		return nil, err
	}
	groups := make(map[string]string) // of clusters, by PID namespace
	for _, p := range all {
		if strings.Contains(p.group, "holdfast-cluster-") {
			groups[p.namespace] = p.group
		}
	}
	var found []string
	for _, p := range all {
		if group := groups[p.namespace]; group != "" {
			p.group = group
		}
		found = append(found, fmt.Sprintf("process %s %s of %s", p.pid, p.args, p.group))
	}
	return found, nil
}

func namespaced() ([]process, error) {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		namespace, err := os.Readlink(filepath.Join(dir, "ns/pid"))
		if err != nil || namespace == own {
			continue // it has ended, or it is of the machine
		}
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(group), "\n")
		found = append(found, process{e.Name(), namespace, strings.ReplaceAll(string(args), "\x00", " "), first})
	}
	return found, nil
}

func mounts() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			found = append(found, "mount "+fields[4])
		}
	}
	return found, nil
}

func loops() ([]string, error) {
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var found []string
	for _, path := range paths {
		file, err := os.ReadFile(path)
		if err != nil {
			continue // detached meanwhile
		}
		found = append(found, fmt.Sprintf("loop device %s of %s", strings.Split(path, "/")[3], strings.TrimSpace(string(file))))
	}
	return found, err
}

func links() ([]string, error) {
	interfaces, err := net.Interfaces()
	var found []string
	for _, i := range interfaces {
		found = append(found, "network device "+i.Name)
	}
	return found, err
}

func networks() ([]string, error) {
	entries, err := os.ReadDir("/run/netns")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []string
	for _, e := range entries {
		found = append(found, "network namespace "+e.Name())
	}
	return found, err
}

// controlGroups lists those at the top of each hierarchy.
func controlGroups() ([]string, error) {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/holdfast*", "/sys/fs/cgroup/*/holdfast*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			found = append(found, "control group "+path)
		}
	}
	return found, nil
}
