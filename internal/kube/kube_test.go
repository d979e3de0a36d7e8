package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/rights"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func newClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: driverName}
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	class := "fast"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": driverName},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// volumeOf returns an error until a claim's PersistentVolume is there.
func volumeOf(c *apiserver.Cluster, name string) (*corev1.PersistentVolume, error) {
	return c.Core.CoreV1().PersistentVolumes().Get(c.Context(), "pvc-uid-"+name, metav1.GetOptions{})
}

func TestNew_refusesInvalidOptions(t *testing.T) {
	c := apiserver.New(t, attaching())
	for want, change := range map[string]func(*Options){
		`unknown controller "provide"`: func(o *Options) { o.Wanted = []Role{"provide"} },
		"namespace is not known":       func(o *Options) { o.Namespace = "" },
		"namespace kube-system":        func(o *Options) { o.Intents = "kube-system" },
	} {
		controllers, err := New(options(c, change))
		if err == nil {
			err = controllers.Run(c.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestDescribe_reportsWhatItWaitsFor(t *testing.T) {
	c := apiserver.New(t, attaching())
	s := newSocket(t)
	p := start(t, options(c, func(o *Options) { o.CSI = s.client }))
	c.React("*", "persistentvolumes", func(apiserver.Request) error { return errTest })
	waitFor := func(want string) {
		t.Helper()
		eventually(t, func() error {
			words, err := p.Describe()
			if text := fmt.Sprint(words, err); !strings.Contains(text, want) {
				return fmt.Errorf("the state is %q, not %q", text, want)
			}
			return nil
		})
	}
	waitFor("waiting for the driver")
	if p.Driver() != "" {
		t.Errorf("the driver's name is %q before the handshake", p.Driver())
	}
	s.serve(attaching())
	waitFor("filling the caches")
	if p.Driver() != driverName {
		t.Errorf("the driver's name is %q", p.Driver())
	}
}

func TestRun_servesAClaim(t *testing.T) {
	driver := attaching()
	driver.Plugin = driver.Plugin[:2] // without topology the cluster needs no node
	c := apiserver.New(t, driver, newClass(), newClaim("a"))
	p := start(t, options(c))
	var pv *corev1.PersistentVolume
	eventually(t, func() (err error) { pv, err = volumeOf(c, "a"); return err })
	// One process attaches and provisions: the finalizer of both is there at once.
	if want := []string{claim.ProvisionerFinalizer, claim.AttacherFinalizer(driverName)}; !slices.Equal(pv.Finalizers, want) {
		t.Errorf("finalizers %v, want %v", pv.Finalizers, want)
	}
	if words, err := p.Describe(); err != nil || !strings.Contains(words, driverName) {
		t.Errorf("the state is %q, %v", words, err)
	}
	p.stop()
	if err := p.end(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestRun_listsOnlyWhatItsRolesRead(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*Options)
		unasked []string
		asked   []string
	}{
		"all": {asked: []string{"persistentvolumes", "persistentvolumeclaims", "volumeattachments", "nodes", "csinodes"}, unasked: []string{"pods", "secrets", "events"}},
		// A node's process has no right to VolumeAttachments: a cache of them would never
		// fill.
		"a node for itself": {
			change: func(o *Options) { o.Node = "node-1" },
			asked:  []string{"persistentvolumes", "persistentvolumeclaims"}, unasked: []string{"volumeattachments", "nodes"},
		},
		"a node for itself with capacity": {
			change:  func(o *Options) { o.Node, o.Tuning.Capacity = "node-1", true },
			unasked: []string{"volumeattachments", "nodes", "csinodes"},
		},
		"attach alone": {
			change: func(o *Options) { o.Wanted = []Role{rights.Attach} },
			asked:  []string{"volumeattachments", "persistentvolumes", "csinodes"}, unasked: []string{"storageclasses", "persistentvolumeclaims", "nodes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driver := attaching()
			driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
			c := apiserver.New(t, driver)
			seen := asked(c)
			p := start(t, options(c, func(o *Options) {
				if test.change != nil {
					test.change(o)
				}
			}))
			p.ready()
			for _, kind := range test.asked {
				if !seen()[kind] {
					t.Errorf("%s are not listed", kind)
				}
			}
			for _, kind := range test.unasked {
				if seen()[kind] {
					t.Errorf("%s are listed", kind)
				}
			}
		})
	}
}

// Everything that a process lists and watches must be in the table of rights.
func TestRun_needsOnlyRightsOfTheTable(t *testing.T) {
	for _, mode := range []rights.Mode{rights.Central, rights.Node} {
		driver := attaching()
		driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_GET_CAPACITY,
			csi.ControllerServiceCapability_RPC_MODIFY_VOLUME, csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH)
		c := apiserver.New(t, driver)
		seen := asked(c)
		p := start(t, options(c, func(o *Options) {
			o.Tuning.Capacity, o.Tuning.ImmediateOnNodes, o.Tuning.CapacityOwnerLevel = true, true, -1
			if mode == rights.Node {
				o.Node = "node-1"
			}
		}))
		p.ready()
		eventually(t, func() error { // caches of custom resources start after the others
			if !seen()["volumesnapshotcontents"] {
				return fmt.Errorf("mode %v: contents are not listed", mode)
			}
			return nil
		})
		may := map[string]bool{}
		for _, right := range rights.Of(mode, append(Roles(), rights.Modify, rights.Capacity, rights.Intent, rights.Lease)...) {
			may[right.Verb+" "+right.Resource] = true
		}
		for kind := range seen() {
			if !may["list "+kind] || !may["watch "+kind] && kind != "configmaps" {
				t.Errorf("mode %v: %s are listed and watched without the right", mode, kind)
			}
		}
	}
}

func TestRun_endsWhenAnotherDriverAnswers(t *testing.T) {
	c := apiserver.New(t, attaching())
	s := newSocket(t)
	stop := s.serve(attaching())
	p := start(t, options(c, func(o *Options) { o.CSI = s.client }))
	s.onDisconnect(p.Reconnect)
	p.ready()
	stop()
	other := attaching()
	other.Name = "other.example"
	s.serve(other)
	if err := p.end(); !errors.Is(err, errChanged) {
		t.Errorf("ended with %v", err)
	}
}

func TestRun_continuesAfterAReconnection(t *testing.T) {
	driver := csidriver.New(driverName)
	c := apiserver.New(t, driver, newClass())
	s := newSocket(t)
	stop := s.serve(driver)
	p := start(t, options(c, func(o *Options) { o.CSI = s.client }))
	s.onDisconnect(p.Reconnect)
	p.ready()
	stop()
	c.Add(newClaim("a"))
	time.Sleep(20 * time.Millisecond)
	s.serve(driver)
	eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
}

func TestRun_retriesACallInWhichTheDriverDied(t *testing.T) {
	driver := csidriver.New(driverName)
	c := apiserver.New(t, driver, newClass())
	s := newSocket(t)
	called, dead := make(chan struct{}), make(chan struct{})
	driver.Before = func(ctx context.Context, rpc string, _ any) error {
		if rpc == "CreateVolume" && driver.Count(rpc) == 1 {
			close(called)
			<-ctx.Done()
			<-dead
		}
		return nil
	}
	stop := s.serve(driver)
	p := start(t, options(c, func(o *Options) { o.CSI = s.client }))
	s.onDisconnect(p.Reconnect)
	c.Add(newClaim("a"))
	<-called
	go stop()
	for listening(s.address) {
		time.Sleep(time.Millisecond)
	}
	next := csidriver.New(driverName)
	s.serve(next)
	eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
	close(dead)
	if made := next.Count("CreateVolume"); made != 1 || len(next.Volumes()) != 1 {
		t.Errorf("%d calls made %v", made, next.Volumes())
	}
}

func listening(address string) bool {
	_, err := os.Stat(address)
	return err == nil
}

func TestRun_aStandbyHasFilledCachesAndTakesOver(t *testing.T) {
	driver := csidriver.New(driverName)
	c := apiserver.New(t, driver, newClass())
	elect := func(identity string) Options {
		return options(c, func(o *Options) { o.Elect, o.Lease.Identity, o.Lease.State = true, identity, &lease.State{} })
	}
	first := start(t, elect("first"))
	eventually(t, func() error { return heldBy(c, lease.Name(driverName), "first") })
	second := start(t, elect("second"))
	second.ready()
	c.Add(newClaim("a"))
	eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
	first.stop()
	if err := first.end(); err != nil {
		t.Errorf("the first ended with %v", err)
	}
	c.Add(newClaim("b"))
	eventually(t, func() error { _, err := volumeOf(c, "b"); return err })
	if err := heldBy(c, lease.Name(driverName), "second"); err != nil {
		t.Error(err)
	}
	if made := driver.Count("CreateVolume"); made != 2 {
		t.Errorf("two claims took %d calls of CreateVolume", made)
	}
}

// A process may be a standby for months.
func TestRun_aStandbyQueuesNothing(t *testing.T) {
	driver := csidriver.New(driverName)
	c := apiserver.New(t, driver, newClass())
	elect := func(identity string) Options {
		return options(c, func(o *Options) { o.Elect, o.Lease.Identity = true, identity })
	}
	start(t, elect("first"))
	eventually(t, func() error { return heldBy(c, lease.Name(driverName), "first") })
	o := elect("second")
	second := start(t, o)
	second.ready()
	for i := range 20 {
		pvc := newClaim(fmt.Sprint("c", i))
		c.Add(pvc)
		c.Delete(pvc)
	}
	c.Add(newClaim("last"))
	eventually(t, func() error { _, err := volumeOf(c, "last"); return err })
	eventually(t, func() error {
		if _, found := second.env.Load().Set.Claims().Get("ns/last"); !found {
			return errors.New("the standby's caches are not filled")
		}
		return nil
	})
	families, err := o.Registerer.(prometheus.Gatherer).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "workqueue_depth" && metric.GetGauge().GetValue() != 0 {
				t.Errorf("queue %v has %v keys", metric.GetLabel(), metric.GetGauge().GetValue())
			}
		}
	}
}

func heldBy(c *apiserver.Cluster, name, identity string) error {
	held, err := c.Core.CoordinationV1().Leases(apiserver.Namespace).Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if holder := held.Spec.HolderIdentity; holder == nil || *holder != identity {
		return fmt.Errorf("the lease is not held by %s: %+v", identity, held.Spec)
	}
	return nil
}

func TestRun_endsWhenAnotherHoldsTheLease(t *testing.T) {
	c := apiserver.New(t, csidriver.New(driverName))
	p := start(t, options(c, func(o *Options) { o.Elect = true }))
	eventually(t, func() error { return heldBy(c, lease.Name(driverName), "me") })
	thief, long, now := "thief", int32(60), metav1.NowMicro()
	c.Put(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace, Name: lease.Name(driverName)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &thief, LeaseDurationSeconds: &long, AcquireTime: &now, RenewTime: &now},
	})
	if err := p.end(); !errors.Is(err, lease.ErrLost) {
		t.Errorf("ended with %v", err)
	}
}

func TestRun_endsWhenTheLeaseCannotBeRenewed(t *testing.T) {
	c := apiserver.New(t, csidriver.New(driverName))
	p := start(t, options(c, func(o *Options) {
		o.Elect = true
		o.Lease.Duration, o.Lease.RenewDeadline = 2*time.Second, time.Second
	}))
	eventually(t, func() error { return heldBy(c, lease.Name(driverName), "me") })
	c.React("*", "leases", func(apiserver.Request) error { return apierrors.NewServiceUnavailable("down") })
	if err := p.end(); !errors.Is(err, lease.ErrLost) {
		t.Errorf("ended with %v", err)
	}
}

func TestRun_withoutTopologyOnANode(t *testing.T) {
	driver := attaching()
	driver.Topology = nil
	p := start(t, options(apiserver.New(t, driver), func(o *Options) { o.Node = "node-1" }))
	if err := p.end(); err == nil || !strings.Contains(err.Error(), "run the controllers centrally") {
		t.Errorf("ended with %v", err)
	}
}

func TestRun_logsMissingRights(t *testing.T) {
	log := &journal{}
	c := apiserver.New(t, csidriver.New(driverName)) // grants no rights
	p := start(t, options(c, func(o *Options) { o.Logger, o.Tuning.Capacity = log.logger(), true }))
	p.ready()
	for _, right := range []string{"patch persistentvolumeclaims/status", "create configmaps", "create csistoragecapacities.storage.k8s.io", "create events"} {
		eventually(t, func() error { return log.contains("no right to " + right) })
	}
	eventually(t, func() error { return log.contains("the driver lacks GET_CAPACITY") })
}

func TestRun_refusesAMissingOwner(t *testing.T) {
	driver := attaching()
	driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	p := start(t, options(apiserver.New(t, driver), func(o *Options) { o.Tuning.Capacity, o.Tuning.CapacityOwnerLevel = true, 1 }))
	if err := p.end(); err == nil || !strings.Contains(err.Error(), "POD_NAME") {
		t.Errorf("ended with %v", err)
	}
}
