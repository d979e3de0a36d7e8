package volumes

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// nodePoints are the failpoints of mounting and unmounting a volume.
func nodePoints() []string {
	var points []string
	for _, step := range []string{"attach", "stage", "publish", "expand-node", "unpublish", "unstage", "detach"} {
		points = append(points, "host/"+step+"/intent", "host/"+step+"/called")
	}
	return append(points, "host/publish/owned")
}

// A host that crashes at any point of mounting or unmounting is followed by one that
// reaches the desired state, in the same boot or after a reboot.
func TestCrash_atEveryPoint(t *testing.T) {
	for _, boot := range []string{"boot-1", "boot-2"} {
		for _, point := range nodePoints() {
			t.Run(boot+" "+point, func(t *testing.T) {
				w, _ := newServing(t, attaching)
				key := w.ensured("a")
				w.grown(key, "2Gi")
				w.serving("boot-1", point+"=error")
				p := w.create(pod("web", "a"))
				_, err := w.manager.MountPod(t.Context(), p)
				if err == nil {
					err = w.manager.UnmountPod(t.Context(), p)
				}
				if err == nil {
					t.Fatal("the failpoint is not passed")
				}
				w.reboot(boot)
				w.mount(p)
				w.consistent()
				w.unmount(p)
				w.isIdle()
				if len(w.attachments()) != 0 {
					t.Errorf("left: %v", w.attachments())
				}
			})
		}
	}
}

// reboot starts the host in a boot. If it is another boot, all volumes are unmounted.
func (w *world) reboot(boot string) {
	w.t.Helper()
	if boot != w.manager.options.BootID {
		w.unmountAll()
	}
	w.serving(boot, "")
}

// consistent checks that each target that is recorded as published is mounted.
func (w *world) consistent() {
	w.t.Helper()
	for _, use := range w.uses() {
		for path, target := range use.Targets {
			if target.Phase == store.PhaseDone && !isMounted(path) {
				w.t.Errorf("%s is recorded as published at %s, and is not", use.Handle, path)
			}
		}
	}
}

// Pods are created and deleted, the host and the machine restart at any moment, and the
// driver fails at random. In the end, each pod has its volumes, and no mount, record or
// attachment of a deleted pod remains.
func TestModel_randomOperations(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			m := newModel(t, seed)
			for range 120 {
				m.step()
			}
			m.converge()
		})
	}
}

type model struct {
	*world
	random  *rand.Rand
	mu      sync.Mutex
	faults  bool
	boot    int
	desired map[string]*corev1.Pod // pods that exist
	// daemons serve the filesystems in user space, of a driver that has such.
	daemons []*csidriver.FUSE
	// busy are open files that keep mounts from being unmounted.
	busy  []*os.File
	going map[string]bool // of those, the ones that are deleted
}

func newModel(t *testing.T, seed uint64) *model {
	t.Helper()
	m := &model{random: rand.New(rand.NewPCG(seed, 7)), desired: map[string]*corev1.Pod{}, going: map[string]bool{}} //nolint:gosec // repeatable
	w, a := newServing(t, attaching, stagesATmpfs, func(d *csidriver.Driver) {
		d.Forgetful = seed%2 == 1
		if seed%3 == 2 {
			d.Publish = m.publishFUSE
		}
	})
	t.Cleanup(func() { m.vacate(); m.killDaemons(0) })
	m.world = w
	a.fail = m.fault
	m.boot = 1
	w.object(ephemeral)
	for _, name := range []string{"a", "b", "c"} {
		w.ensured(name)
	}
	m.faults = true
	return m
}

// publishFUSE is what a driver of filesystems in user space does at the target.
func (m *model) publishFUSE(r *csi.NodePublishVolumeRequest) error {
	if err := os.MkdirAll(r.GetTargetPath(), 0o755); err != nil || isMounted(r.GetTargetPath()) {
		return err
	}
	daemon, err := csidriver.MountFUSE(r.GetTargetPath())
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.daemons = append(m.daemons, daemon)
	}
	return err
}

// occupy opens a directory in one of the mounts, which is busy from then on.
func (m *model) occupy() {
	for _, use := range m.uses() {
		for path := range use.Targets {
			if file, err := os.Open(path); err == nil && m.pick(2) == 0 {
				m.busy = append(m.busy, file)
				return
			} else if err == nil {
				_ = file.Close()
			}
		}
	}
}

// vacate ends what occupy began.
func (m *model) vacate() {
	for _, file := range m.busy {
		_ = file.Close()
	}
	m.busy = nil
}

// killDaemons leaves so many alive; the mounts of the others stay.
func (m *model) killDaemons(left int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.daemons) > left {
		m.daemons[0].Kill()
		m.daemons = m.daemons[1:]
	}
}

// fault is a driver's failure before it does anything.
func (m *model) fault(rpc string, _ int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	asking := strings.HasPrefix(rpc, "Get") || strings.Contains(rpc, "Capabilities") || rpc == "NodeGetInfo"
	if !m.faults || asking || m.random.IntN(5) > 0 {
		return nil
	}
	kinds := []codes.Code{codes.Internal, codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.InvalidArgument, codes.ResourceExhausted}
	return csidriver.Fail(kinds[m.random.IntN(len(kinds))], "at random")
}

func (m *model) pick(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

// step does one thing at random. Errors are what the queue would repeat.
func (m *model) step() {
	switch m.pick(17) {
	case 0, 1, 2:
		m.appear()
	case 3, 4, 5, 6:
		for _, name := range m.names() {
			m.reconcile(name)
		}
	case 7, 8:
		if names := m.names(); len(names) > 0 {
			m.going[names[m.pick(len(names))]] = true
		}
	case 9: // a crash at some point, and a start
		points := nodePoints()
		m.serving(m.bootID(), points[m.pick(len(points))]+"=error")
		for _, name := range m.names() {
			m.reconcile(name)
		}
		m.serving(m.bootID(), "")
	case 10:
		m.vacate() // no process outlives a boot
		m.boot++
		m.reboot(m.bootID())
	case 12:
		m.killDaemons(1)
	case 13:
		m.occupy()
	case 14:
		m.vacate()
	case 15:
		m.loseVolume()
	case 16:
		m.unmountByHand()
	case 11: // a pod's object is lost
		if names := m.names(); len(names) > 0 {
			m.forget(names[m.pick(len(names))])
		}
	}
	m.consistent()
	m.recorded()
}

// loseVolume removes a volume at the storage system: a forgetful driver answers
// NOT_FOUND from then on, and what is mounted stays.
func (m *model) loseVolume() {
	if uses := m.uses(); len(uses) > 0 {
		m.driver.Forget(uses[m.pick(len(uses))].Handle)
	}
}

// unmountByHand does what the errors of a volume that was lost ask the operator
// for.
func (m *model) unmountByHand() {
	for _, use := range m.uses() {
		if use.Stage == store.PhaseUndoing {
			_ = unix.Unmount(use.StagingPath, 0)
		}
		for path, target := range use.Targets {
			if target.Phase == store.PhaseUndoing {
				_ = unix.Unmount(path, 0)
			}
		}
	}
}

// recorded checks that each mount is of a volume that is recorded as in use.
func (m *model) recorded() {
	m.t.Helper()
	known := map[string]bool{}
	for _, use := range m.uses() {
		known[use.StagingPath] = true
		for path := range use.Targets {
			known[path] = true
		}
	}
	mounts, err := m.manager.readMountTable(m.root)
	if err != nil {
		m.t.Fatal(err)
	}
	for path := range mounts {
		if !known[path] {
			m.t.Errorf("%s is mounted, and no record of a volume has it", path)
		}
	}
}

func (m *model) bootID() string { return fmt.Sprintf("boot-%d", m.boot) }

func (m *model) names() (names []string) {
	for name := range m.desired {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m *model) appear() {
	name := fmt.Sprintf("pod%d", m.pick(5))
	if m.desired[name] != nil {
		return
	}
	p := pod(name, []string{"a", "b", "c"}[m.pick(3)])
	if m.pick(3) == 0 {
		p = inline(name, "scratch")
		p.Spec.Volumes[0].CSI.Driver = "d.example"
	}
	if m.pick(2) == 0 {
		withGroup(p, 4321)
	}
	p.UID = types.UID(fmt.Sprintf("%s-%d", name, m.pick(1<<30)))
	m.desired[name] = m.create(p)
}

func (m *model) forget(name string) {
	p := m.desired[name]
	m.put(func(tx *store.Tx) error { return tx.Pods().Delete(store.KeyOf(p)) })
	delete(m.desired, name)
	delete(m.going, name)
	_ = m.undoLeftovers() // tried again in the end
}

func (m *model) reconcile(name string) error {
	p := m.desired[name]
	if !m.going[name] {
		_, err := m.manager.MountPod(m.t.Context(), p)
		return err
	}
	if err := m.manager.UnmountPod(m.t.Context(), p); err != nil {
		return err
	}
	m.put(func(tx *store.Tx) error { return tx.Pods().Delete(store.KeyOf(p)) })
	delete(m.desired, name)
	delete(m.going, name)
	return nil
}

// converge lets the driver be well, and everything come to its end.
func (m *model) converge() {
	m.vacate()
	m.mu.Lock()
	m.faults = false
	m.mu.Unlock()
	for _, name := range []string{"a", "b", "c"} { // each volume has a pod with a group in the end
		p := withGroup(pod("last-"+name, name), 4321)
		m.desired[p.Name] = m.create(p)
	}
	for _, name := range m.names() {
		if err := m.reconcile(name); err != nil {
			m.t.Errorf("pod %s: %v", name, err)
		}
	}
	if err := m.undoLeftovers(); err != nil {
		m.t.Error(err)
	}
	m.consistent()
	for _, name := range m.names() {
		for volume, target := range m.mount(m.desired[name]) {
			if !isMounted(target.Path) {
				m.t.Errorf("volume %s of pod %s is not mounted", volume, name)
			}
		}
		m.going[name] = true
	}
	for _, name := range m.names() {
		if err := m.reconcile(name); err != nil {
			m.t.Errorf("pod %s: %v", name, err)
		}
	}
	if err := m.undoLeftovers(); err != nil {
		m.t.Error(err)
	}
	m.empty()
}

// empty checks that nothing is in use, mounted, recorded or attached.
func (m *model) empty() {
	if _, inUse := m.driver.Left(); len(inUse) > 0 {
		m.t.Errorf("in use: %v", inUse)
	}
	if uses := m.uses(); len(uses) > 0 {
		m.t.Errorf("%d uses are recorded, such as %+v", len(uses), uses[0])
	}
	if mounts, err := m.manager.readMountTable(m.root); err != nil || len(mounts) > 0 {
		m.t.Errorf("mounted: %v, %v", mounts, err)
	}
	if all := m.attachments(); len(all) > 0 {
		m.t.Errorf("attached: %d", len(all))
	}
	for _, directory := range []string{"pods", "plugins"} {
		if entries, err := os.ReadDir(m.root + "/" + directory); err == nil && len(entries) > 0 {
			m.t.Errorf("%s has %v", directory, entries)
		}
	}
}
