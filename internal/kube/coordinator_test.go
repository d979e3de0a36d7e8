package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func notElected(o *Options) { o.Elect = false }

// startCoordinator starts a coordinator in a process of its own. stop ends it.
func startCoordinator(t *testing.T, c *apiserver.Cluster, identity string) (coordinator *Coordinator, stop func()) {
	t.Helper()
	env, o := c.NewEnv(), options(c)
	coordinator = NewCoordinator(CoordinatorOptions{
		Clients: env.Clients, Driver: driverName, Namespace: apiserver.Namespace, Immediate: true,
		Lease:  lease.Options{Identity: identity, Duration: o.Lease.Duration, RenewDeadline: o.Lease.RenewDeadline, RetryPeriod: o.Lease.RetryPeriod},
		Logger: env.Logger, Registerer: env.Registerer,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := coordinator.Run(ctx); err != nil {
			t.Errorf("coordinator %s: %v", identity, err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return coordinator, stop
}

// TestCoordinator_leavesTheNodesTheirOwnObjects: next to a coordinator, no node's process
// lists the objects of all nodes or changes a claim of another node. An admission policy
// can then refuse both.
func TestCoordinator_leavesTheNodesTheirOwnObjects(t *testing.T) {
	c := apiserver.New(t, nodeLocal(), append(machines("n1", "n2"), newClass())...)
	coordinator, _ := startCoordinator(t, c, "coordinator")
	envs, byProcess := map[string]*cluster.Env{}, map[string]string{}
	for _, node := range []string{"n1", "n2"} {
		envs[node] = c.NewEnv()
		byProcess[c.Process(envs[node])] = node
	}
	wrong := make(chan string, 1000)
	c.React("*", "*", func(q apiserver.Request) error {
		node, ofANode := byProcess[q.Process]
		kinds := []string{"persistentvolumeclaims", "persistentvolumes", "nodes", "csinodes", "volumesnapshots", "volumesnapshotcontents"}
		switch {
		case !ofANode || !slices.Contains(kinds, q.Resource):
		case (q.Verb == "list" || q.Verb == "watch") && !q.Selects():
			wrong <- fmt.Sprintf("%s %s of all nodes", q.Verb, q.Resource)
		case q.Verb == "patch" && q.Resource == "persistentvolumeclaims":
			pvc, err := c.Core.CoreV1().PersistentVolumeClaims(q.Namespace).Get(context.Background(), q.Name, metav1.GetOptions{})
			if err == nil && claim.SelectedNode(pvc) != node {
				wrong <- fmt.Sprintf("%s patches claim %s of node %q", node, q.Name, claim.SelectedNode(pvc))
			}
		}
		return nil
	})
	for node, env := range envs {
		startNodeIn(t, c, env, node, notElected)
	}
	for i := range 6 {
		c.Add(newClaim(fmt.Sprint("c", i)))
	}
	for i := range 6 {
		eventually(t, func() error { _, err := volumeOf(c, fmt.Sprint("c", i)); return err })
	}
	if words, err := coordinator.Describe(); err != nil || words != "coordinating the nodes of "+driverName {
		t.Errorf("the coordinator describes itself as %q, %v", words, err)
	}
	for len(wrong) > 0 {
		t.Error(<-wrong)
	}
}

// TestCoordinator_reportsIntentsThatNoProcessCompletes: the process that coordinates all nodes
// lists the intents of lost nodes. A list by each node grows with the square of their number.
func TestCoordinator_reportsIntentsThatNoProcessCompletes(t *testing.T) {
	for name, deployed := range map[string]bool{"a Deployment": true, "one of the nodes": false} {
		t.Run(name, func(t *testing.T) {
			driver := nodeLocal()
			pvc := selectedOn(newClaim("a"), "lost")
			pvc.Labels = map[string]string{claim.NodeLabel: "lost"}
			c := apiserver.New(t, driver, append(machines("lost", "n1", "n2"), late(newClass()), pvc)...)
			called := make(chan struct{})
			first := sync.OnceFunc(func() { close(called) })
			driver.After = func(_ context.Context, rpc string, _ any) error {
				if rpc != "CreateVolume" {
					return nil
				}
				first()
				return csidriver.Fail(codes.Unavailable, "the node ends")
			}
			lost := startNode(t, c, "lost", notElected)
			<-called
			lost.stop()
			_ = lost.end()
			c.Delete(machines("lost")[1])

			var mu sync.Mutex
			listing := map[string]bool{} // processes that list the intents of all
			c.React("list", "configmaps", func(q apiserver.Request) error {
				mu.Lock()
				defer mu.Unlock()
				if q.Process != "" && q.Selector() == "holdfast.dev/intents" {
					listing[q.Process] = true
				}
				return nil
			})
			var registries []prometheus.Registerer
			elect := func(o *Options) { o.Elect = !deployed }
			for _, node := range []string{"n1", "n2"} {
				p := startNode(t, c, node, elect)
				p.ready()
				registries = append(registries, p.options.Registerer)
			}
			if deployed {
				coordinator, _ := startCoordinator(t, c, "coordinator")
				registries = append(registries, coordinator.options.Registerer)
			}
			eventually(t, func() error {
				counts := map[float64]int{}
				for _, registry := range registries {
					if count, found := gaugeOf(t, registry, "holdfast_provision_unserved_intents"); found {
						counts[count]++
					}
				}
				if len(counts) != 1 || counts[1] != 1 {
					return fmt.Errorf("counts of unserved intents, and how many processes have each: %v", counts)
				}
				return nil
			})
			eventually(t, func() error {
				events := eventsOf(t, c)
				if !slices.ContainsFunc(events, func(message string) bool {
					return strings.Contains(message, `was being created by node "lost", which no longer runs the driver`)
				}) {
					return fmt.Errorf("events %q", events)
				}
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			if len(listing) != 1 {
				t.Errorf("processes %v list the intents of all nodes", listing)
			}
		})
	}
}

// gaugeOf returns the value of a gauge that a process registers.
func gaugeOf(t *testing.T, registerer prometheus.Registerer, name string) (value float64, found bool) {
	t.Helper()
	registry, ok := registerer.(*prometheus.Registry)
	if !ok {
		t.Fatalf("the registerer is a %T", registerer)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue(), true
		}
	}
	return 0, false
}

// TestCoordinator_ends: a standby, which is ready and has no caches, follows.
func TestCoordinator_ends(t *testing.T) {
	c := apiserver.New(t, nodeLocal(), append(machines("n1"), newClass())...)
	startNode(t, c, "n1", notElected)
	_, stop := startCoordinator(t, c, "first")
	c.Add(newClaim("a"))
	eventually(t, func() error { _, err := volumeOf(c, "a"); return err })
	second, _ := startCoordinator(t, c, "second")
	if words, err := second.Describe(); err != nil || words != "standby" {
		t.Errorf("a standby describes itself as %q, %v", words, err)
	}
	stop()
	c.Add(newClaim("b"))
	eventually(t, func() error { _, err := volumeOf(c, "b"); return err })
	if holder := elected(t, c); holder != "second" {
		t.Errorf("%s holds the lease", holder)
	}
}
