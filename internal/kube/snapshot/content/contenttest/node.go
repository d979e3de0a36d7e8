package contenttest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func labelOf(object metav1.Object) string { return object.GetLabels()[claim.ManagedByLabel] }

func (s *Suite[T]) nodeCreatesAndLabels(t *testing.T) {
	object := s.Make("a")
	f := s.StartOn(t, "n1", nil, append(s.volumesOf(object, "n1"), object)...)
	if node := labelOf(f.Done("a")); node != "n1" {
		t.Errorf("labelled for %q", node)
	}
	// The volumes may be deleted before the snapshot: the label then names its node.
	for _, volume := range s.volumesOf(object, "n1") {
		f.Delete(volume)
	}
	f.DeleteByUser("a")
	f.Vanishes("a")
	f.AtDriver(0)
}

// nodeAsksItsDriver: an administrator wrote the PersistentVolumes without an affinity, and only the
// drivers know on which node a volume is.
func (s *Suite[T]) nodeAsksItsDriver(t *testing.T) {
	driver := csidriver.New(Driver)
	here := s.Make("here")
	volumes := s.volumesOf(here, "n1")
	for _, handle := range s.View(here).Volumes {
		driver.AddVolume(handle, 1<<30)
	}
	for _, volume := range volumes {
		if pv, ok := volume.(*corev1.PersistentVolume); ok {
			pv.Spec.NodeAffinity = nil
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		}
	}
	f := s.StartOn(t, "n1", driver, append(volumes, here)...)
	if node := labelOf(f.Done("here")); node != "n1" {
		t.Errorf("labelled for %q", node)
	}
	other := s.StartOn(t, "n2", csidriver.New(Driver), append(volumes, here)...)
	other.Eventually(func() error {
		if other.Driver.Count("ValidateVolumeCapabilities") == 0 {
			return errors.New("the driver was not asked")
		}
		return nil
	})
	other.Never(60*time.Millisecond, func() error {
		if object := other.Get("here"); labelOf(object) != "" {
			return fmt.Errorf("another node takes it: %+v", object)
		}
		return nil
	})
}

func (s *Suite[T]) nodeIgnoresOthers(t *testing.T) {
	for name, row := range map[string]struct {
		volumes string
		object  T
	}{
		"by the volumes":                    {"n2", s.Make("a")},
		"by the label":                      {"n1", s.Make("a", s.Labelled("n2"))},
		"by the volumes, during a creation": {"n2", s.Make("a", s.Marked, s.Deleted, s.UserGone)},
	} {
		t.Run(name, func(t *testing.T) {
			s.StartOn(t, "n1", nil, append(s.volumesOf(row.object, row.volumes), row.object)...).Untouched("a")
		})
	}
}

func (s *Suite[T]) nodeServesItsLabel(t *testing.T) {
	s.StartOn(t, "n1", nil, s.Make("a", s.Labelled("n1"))).Done("a")
}

func (s *Suite[T]) nodeWaitsForVolumes(t *testing.T) {
	object := s.Make("a")
	volumes := s.volumesOf(object, "n1")
	last := len(volumes) - 1
	f := s.StartOn(t, "n1", nil, append([]runtime.Object{object}, volumes[:last]...)...)
	f.Untouched("a")
	f.Add(volumes[last])
	f.Done("a")
}

func (s *Suite[T]) nodeAdopts(t *testing.T) {
	driver := csidriver.New(Driver)
	elsewhere := s.Add(csidriver.New(Driver), "elsewhere")
	f := s.StartOn(t, "n1", driver, s.Static("own", s.Add(driver, "old")), s.Static("other", elsewhere))
	if node := labelOf(f.Done("own")); node != "n1" {
		t.Errorf("labelled for %q", node)
	}
	if v := s.View(f.Get("other")); v.Handle != "" || v.Error != "" || v.Meta.Labels != nil {
		t.Errorf("the snapshot that another node may have was touched: %+v", v)
	}
}

// nodeDeletesUnlabelled: the PersistentVolume of a retained volume may be gone when its
// snapshot is deleted.
func (s *Suite[T]) nodeDeletesUnlabelled(t *testing.T) {
	driver := csidriver.New(Driver)
	f := s.StartOn(t, "n1", driver, s.Make("a", s.Recorded(s.Add(driver, "old"), true), s.Deleted, s.UserGone))
	f.Vanishes("a")
	f.AtDriver(0)
}

// nodeDeletesASharedID: drivers that work on each node alone may give the same ID on two
// nodes.
func (s *Suite[T]) nodeDeletesASharedID(t *testing.T) {
	driver := csidriver.New(Driver)
	recorded := s.Recorded(s.Add(driver, "old"), true)
	f := s.StartOn(t, "n1", driver,
		s.Make("a", recorded, s.Labelled("n1"), s.Deleted, s.UserGone), s.Make("b", recorded, s.Labelled("n2")))
	f.Vanishes("a")
	f.AtDriver(0)
}

// nodeKeepsForAnUnlabelledContent: an administrator has just created another content, and
// no process has labelled it yet.
func (s *Suite[T]) nodeKeepsForAnUnlabelledContent(t *testing.T) {
	driver := csidriver.New(Driver)
	of := s.Add(driver, "old")
	f := s.StartAfter(t, onlyNode[T], driver, s.Static("a", of, s.Labelled("n1")), s.Static("b", of, s.Retain))
	f.Done("a")
	f.DeleteByUser("a")
	f.sharedBy()
	f.deletedNever()
}

// onlyNode gives the controller the objects of node n1 only.
func onlyNode[T cluster.Object](f *Fixture[T]) {
	f.Env.Scope = cluster.Scope{Node: "n1", Segments: map[string]string{"node": "n1"}, Labelled: true}
	f.Env.Set.OnlyNode("n1")
}

// nodeSharesTheList: the list has the contents of all other drivers, and each deletion must
// read it after it was decided.
func (s *Suite[T]) nodeSharesTheList(t *testing.T) {
	const deletions = 20
	driver := csidriver.New(Driver)
	of := func(i int, more ...func(T)) T {
		name := fmt.Sprint("a", i)
		return s.Make(name, append(more, s.Recorded(s.Add(driver, name), true), s.Labelled("n1"))...)
	}
	var objects []runtime.Object
	for i := range deletions {
		objects = append(objects, of(i))
	}
	var counting atomic.Bool
	var read, lists atomic.Int64
	all := make(chan struct{})
	release := sync.OnceFunc(func() { close(all) })
	t.Cleanup(release)
	f := s.StartAfter(t, func(f *Fixture[T]) {
		onlyNode(f)
		f.Env.Workers = 2 * deletions
		f.React("get", s.Traits.Resources[0], func(apiserver.Request) error { read.Add(1); return nil })
		f.React("list", s.Traits.Resources[0], func(q apiserver.Request) error {
			if counting.Load() && q.Process != "" {
				lists.Add(1)
				<-all
			}
			return nil
		})
	}, driver, objects...)
	counting.Store(true)
	for i := range deletions {
		f.Put(of(i, s.Deleted, s.UserGone))
	}
	f.Eventually(func() error {
		if begun := read.Load(); begun < deletions {
			return fmt.Errorf("%d deletions have begun", begun)
		}
		return nil
	})
	release()
	for i := range deletions {
		f.Vanishes(fmt.Sprint("a", i))
	}
	if n := lists.Load(); n == 0 || n > deletions/2 {
		t.Errorf("%d deletions at once listed the contents %d times", deletions, n)
	}
}

func (s *Suite[T]) nodeReleasesAnOrphan(t *testing.T) {
	deleted := metav1.NewTime(time.Now().Add(-2 * time.Minute))
	f := s.StartOn(t, "n1", nil, s.Make("just"), s.Make("ready", s.Recorded(s.Taken("ready"), true)),
		s.Make("long", s.UserGone, func(o T) { o.SetDeletionTimestamp(&deleted) }))
	f.Vanishes("long")
	f.Untouched("ready")
	f.DeleteByUser("just")
	f.stays("just") // another node may have it in its caches
}
