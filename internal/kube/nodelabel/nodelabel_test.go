package nodelabel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	driverName = "ebs.csi.aws.com"
	interfaces = driverName + "/enis-count"
	volumes    = driverName + "/volumes"
)

// machines are the facts of a cloud.
type machines struct {
	mu         sync.Mutex
	interfaces map[string]string   // by provider ID
	attached   map[string][]string // volumes by provider ID
	fails      error
}

func (m *machines) find(_ context.Context, providerID string, used func(string) bool) (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	count, known := m.interfaces[providerID]
	if !known || m.fails != nil {
		return nil, m.fails
	}
	others := 0
	for _, volume := range m.attached[providerID] {
		if !used(volume) {
			others++
		}
	}
	return map[string]string{interfaces: count, volumes: fmt.Sprint(others)}, nil
}

func (m *machines) set(providerID, count string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interfaces[providerID] = count
}

func node(name, providerID string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"own": name}},
		Spec:       corev1.NodeSpec{ProviderID: providerID},
	}
}

func volume(handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle}},
	}}
}

type fixture struct {
	*apiserver.Cluster
	t          *testing.T
	machines   *machines
	controller *Controller
}

func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	m := &machines{interfaces: map[string]string{"one": "1", "two": "2"}, attached: map[string][]string{"two": {"vol-a", "vol-b", "vol-c"}}}
	f := &fixture{Cluster: apiserver.New(t, csidriver.New(driverName), objects...), t: t, machines: m}
	f.controller = New(f.Env, m.find)
	return f
}

// labelled returns an error unless a Node has its own label and these.
func (f *fixture) labelled(name string, want map[string]string) error {
	got, err := f.Core.CoreV1().Nodes().Get(f.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	want = maps.Clone(want)
	if want == nil {
		want = map[string]string{}
	}
	want["own"] = name
	if !maps.Equal(got.Labels, want) {
		return fmt.Errorf("node %s has the labels %v; want %v", name, got.Labels, want)
	}
	return nil
}

// Nodes that exist and nodes that come are labelled, also if their provider ID comes later.
func TestRun_labelsNodes(t *testing.T) {
	f := newFixture(t, node("first", "one"), node("other-cloud", "gce"), node("new", ""), volume("vol-b"))
	f.Run(f.Env, f.controller)
	f.Eventually(func() error { return f.labelled("first", map[string]string{interfaces: "1", volumes: "0"}) })
	f.Put(node("new", "two"))
	f.Eventually(func() error { return f.labelled("new", map[string]string{interfaces: "2", volumes: "2"}) })
	f.Add(node("last", "one"))
	f.Eventually(func() error { return f.labelled("last", map[string]string{interfaces: "1", volumes: "0"}) })
	if err := f.labelled("other-cloud", nil); err != nil {
		t.Error(err)
	}
	if writes := len(f.Writes()); writes != 3 {
		t.Errorf("%d writes for 3 nodes", writes)
	}
}

// A Node is written only if a label differs.
func TestSync_writesDifferences(t *testing.T) {
	f := newFixture(t, node("first", "two"))
	f.Start()
	sync := func(writes int) {
		t.Helper()
		after, err := f.controller.sync(f.Context(), "first")
		if err != nil || after != Interval || len(f.Writes()) != writes {
			t.Errorf("again after %v (%v), %d writes; want %v and %d", after, err, len(f.Writes()), Interval, writes)
		}
	}
	sync(1)
	sync(1)
	f.machines.set("two", "5")
	sync(2)
	if err := f.labelled("first", map[string]string{interfaces: "5", volumes: "3"}); err != nil {
		t.Error(err)
	}
}

func TestSync_repeatsAfterAnError(t *testing.T) {
	f := newFixture(t, node("first", "one"))
	f.Start()
	f.machines.fails = backend.ErrUnavailable
	if _, err := f.controller.sync(f.Context(), "first"); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("the backend's error is %v", err)
	}
	f.machines.fails = nil
	refused := errors.New("refused")
	f.React("patch", "nodes", func(apiserver.Request) error { return refused })
	if _, err := f.controller.sync(f.Context(), "first"); err == nil {
		t.Error("sync returned no error for a refused write")
	}
	if after, err := f.controller.sync(f.Context(), "absent"); after != 0 || err != nil {
		t.Errorf("sync of a node that does not exist returned %v, %v", after, err)
	}
}
