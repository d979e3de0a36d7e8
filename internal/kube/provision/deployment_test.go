package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func onNodes(node string) func(*cluster.Env, *Options) {
	return func(env *cluster.Env, _ *Options) {
		env.Scope = cluster.Scope{Node: node, Segments: map[string]string{"node": node}}
	}
}

func central() func(*cluster.Env, *Options) {
	return func(_ *cluster.Env, o *Options) { o.Topology = places{segments: map[string]string{"node": "n1"}} }
}

// TestDeployment_changesWhileAVolumeIsMade: the controllers ran on each node and
// are central now, or the other way round, and the claim is deleted meanwhile or
// is not. No volume leaks and no claim waits.
func TestDeployment_changesWhileAVolumeIsMade(t *testing.T) {
	for name, toCentral := range map[string]bool{"from nodes to a central process": true, "from a central process to nodes": false} {
		for fate, deleted := range map[string]bool{"the claim stays": false, "the claim is deleted": true} {
			for _, point := range createPoints() {
				t.Run(name+", "+fate+", "+point, func(t *testing.T) {
					t.Parallel()
					w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
					before, after := onNodes("n1"), central()
					if !toCentral {
						before, after = after, before
					}
					w.crashAs(point, before, func() { w.Add(newClaim("a", onNode("n1"))) })
					w.controllerManager()
					if deleted {
						w.Delete(newClaim("a"))
					}
					w.run(after)
					if deleted {
						w.ended(point, "a")
						return
					}
					w.complete(1)
				})
			}
		}
	}
}

// immediateOnNode deploys a provisioner on a node that also takes claims with
// immediate binding.
func immediateOnNode(node string) func(*cluster.Env, *Options) {
	return func(env *cluster.Env, o *Options) {
		onNodes(node)(env, o)
		o.ImmediateOnNodes, o.BaseDelay = true, time.Millisecond
	}
}

// TestDeployment_changesWhileAVolumeOfImmediateBindingIsMade: no node is selected for
// the claim, and both nodes run afterwards.
func TestDeployment_changesWhileAVolumeOfImmediateBindingIsMade(t *testing.T) {
	for name, toCentral := range map[string]bool{"from nodes to a central process": true, "from a central process to nodes": false} {
		for fate, deleted := range map[string]bool{"the claim stays": false, "the claim is deleted": true} {
			for _, point := range []string{"create/called", "create/saving"} {
				t.Run(name+", "+fate+", "+point, func(t *testing.T) {
					t.Parallel()
					w := nodesWorld(t, newClass(), "n1", "n2")
					before, after := central(), []func(*cluster.Env, *Options){immediateOnNode("n2"), immediateOnNode("n1")}
					if toCentral {
						before, after = immediateOnNode("n1"), []func(*cluster.Env, *Options){central()}
					}
					w.crashAs(point, before, func() { w.Add(newClaim("a")) })
					w.controllerManager()
					if deleted {
						w.Delete(newClaim("a"))
					}
					for _, as := range after {
						w.run(as)
					}
					if deleted {
						w.ended(point, "a")
						return
					}
					w.complete(1)
					for _, call := range w.calls() {
						if node := call.GetAccessibilityRequirements().GetPreferred()[0].GetSegments()["node"]; node != "n1" {
							t.Errorf("CreateVolume was called for node %s", node)
						}
					}
				})
			}
		}
	}
}

// several is a Topology that allows each of two nodes, and prefers the first.
func several() fixed {
	var places []*csi.Topology
	for _, node := range []string{"n1", "n2"} {
		places = append(places, &csi.Topology{Segments: map[string]string{csidriver.TopologyKey: node}})
	}
	return fixed{&csi.TopologyRequirement{Requisite: places, Preferred: places}}
}

// localWorld is a cluster of two nodes with a driver of which each node has an
// instance with its own storage.
func localWorld(t *testing.T, class *storagev1.StorageClass) *world {
	w := nodesWorld(t, class, "n1", "n2")
	w.Driver.Creation.Answer = nil
	return w
}

// withInstance has a process call the instance of the driver on a node.
func (w *world) withInstance(
	node string, as func(*cluster.Env, *Options),
) func(*cluster.Env, *Options) {
	return func(env *cluster.Env, o *Options) {
		w.UseInstance(env, node)
		as(env, o)
	}
}

// anywhere deploys a central process whose requests allow both nodes.
func anywhere(_ *cluster.Env, o *Options) { o.Topology = several() }

// TestDeployment_theNodeWhoseDriverWasCalledCompletesAnIntentOfSeveralPlaces: the
// volume of a central process is where its instance of the driver is.
func TestDeployment_theNodeWhoseDriverWasCalledCompletesAnIntentOfSeveralPlaces(t *testing.T) {
	for fate, deleted := range map[string]bool{"the claim stays": false, "the claim is deleted": true} {
		t.Run(fate, func(t *testing.T) {
			t.Parallel()
			w := localWorld(t, newClass())
			w.crashAs("create/called", w.withInstance("n2", anywhere), func() { w.Add(newClaim("a")) })
			w.controllerManager()
			if deleted {
				w.Delete(newClaim("a"))
			}
			for _, node := range []string{"n1", "n2"} {
				w.run(w.withInstance(node, immediateOnNode(node)))
			}
			if deleted {
				w.gone()
				return
			}
			w.complete(1)
			if volumes := w.Driver.Volumes(); volumes["pvc-uid-a@n2"] == "" {
				t.Errorf("volumes %v", volumes)
			}
		})
	}
}

// TestDeployment_aNodeCompletesTheIntentThatItMarked: the intent is one of several
// places that a central process left, and the node dies after its mark.
func TestDeployment_aNodeCompletesTheIntentThatItMarked(t *testing.T) {
	for _, point := range []string{"create/saving", "create/saved"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := localWorld(t, newClass())
			w.crashAs("create/called", w.withInstance("n2", anywhere), func() { w.Add(newClaim("a")) })
			w.controllerManager()
			w.crashAs(point, w.withInstance("n2", immediateOnNode("n2")), func() {})
			for _, node := range []string{"n1", "n2"} {
				w.run(w.withInstance(node, immediateOnNode(node)))
			}
			w.complete(1)
		})
	}
}

// TestDeployment_aMarkedIntentOfSeveralPlacesWaitsForACentralProcess: the
// PersistentVolume may exist, and its volume may be on another node than the instance
// of the driver that created it, if the storage is shared. No node can tell what it
// does not own from what an administrator has replaced.
func TestDeployment_aMarkedIntentOfSeveralPlacesWaitsForACentralProcess(t *testing.T) {
	for _, point := range []string{"create/saving", "create/saved"} {
		for name, instance := range map[string]string{"an instance on a node": "n2", "an instance without a node": ""} {
			for fate, deleted := range map[string]bool{"the claim stays": false, "the claim is deleted": true} {
				t.Run(name+", "+fate+", "+point, func(t *testing.T) {
					t.Parallel()
					w := nodesWorld(t, newClass(), "n1", "n2")
					w.Driver.Creation.Answer = func(request *csi.CreateVolumeRequest, volume *csi.Volume) {
						volume.AccessibleTopology = request.GetAccessibilityRequirements().GetPreferred()[:1]
					}
					shared := func(instance string, as func(*cluster.Env, *Options)) func(*cluster.Env, *Options) {
						return func(env *cluster.Env, o *Options) { env.DriverNode = instance; as(env, o) }
					}
					w.crashAs(point, shared(instance, anywhere), func() { w.Add(newClaim("a")) })
					w.controllerManager()
					if !deleted && point == "create/saved" {
						w.Eventually(func() error {
							if w.claimNow("a").Spec.VolumeName == "" {
								return errors.New("the claim is not bound")
							}
							return nil
						})
					}
					if deleted {
						w.Delete(newClaim("a"))
					}
					for _, node := range []string{"n1", "n2"} {
						c, stop := w.run(shared(node, immediateOnNode(node)))
						w.Eventually(func() error {
							if n := c.unserved.count.Load(); n != 1 {
								return fmt.Errorf("node %s counts %d unserved intents", node, n)
							}
							return nil
						})
						if n := c.intents.Len(); n > 0 {
							t.Errorf("node %s takes over %d intents", node, n)
						}
						defer stop()
					}
					if calls := w.calls(); len(calls) != 1 || w.stored() != 1 {
						t.Errorf("calls %v, %d intents", calls, w.stored())
					}
					for _, event := range w.Events() {
						if strings.Contains(event, "VolumeRetained") {
							t.Errorf("a node writes an event about a volume that it does not own: %s", event)
						}
					}
				})
			}
		}
	}
	t.Run("a central process", func(t *testing.T) {
		t.Parallel()
		w := localWorld(t, newClass())
		w.crashAs("create/saving", w.withInstance("n2", anywhere), func() { w.Add(newClaim("a")) })
		w.controllerManager()
		_, stop := w.run(w.withInstance("n2", immediateOnNode("n2")))
		stop()
		w.run(w.withInstance("n2", anywhere))
		w.complete(1)
	})
}

// TestDeployment_aRejectionByAnotherInstanceProvesNothing: a central process of a
// driver with storage of each node takes over the intent of a node.
func TestDeployment_aRejectionByAnotherInstanceProvesNothing(t *testing.T) {
	for fate, deleted := range map[string]bool{"the claim stays": false, "the claim is deleted": true} {
		t.Run(fate, func(t *testing.T) {
			t.Parallel()
			w := localWorld(t, newClass(waitForConsumer))
			w.crashAs("create/called", w.withInstance("n2", onNodes("n2")), func() { w.Add(newClaim("a", onNode("n2"))) })
			w.controllerManager()
			if deleted {
				w.Delete(newClaim("a"))
			}
			controller, stop := w.run(w.withInstance("n1", anywhere))
			w.Eventually(func() error {
				if n := controller.quarantined(); n != 1 {
					return fmt.Errorf("%d intents in quarantine, %d stored", n, w.stored())
				}
				return nil
			})
			w.event("Warning ProvisioningCleanupFailed ns/a", `volume "pvc-uid-a" may have been made`)
			stop()
			w.run(w.withInstance("n2", onNodes("n2")))
			if deleted {
				w.gone()
				return
			}
			w.complete(1)
		})
	}
}

// TestDeployment_theNextInstanceIsRecordedBeforeItsCall: a node completes the intent of
// a central process and dies; the central process cannot tell what the node did.
func TestDeployment_theNextInstanceIsRecordedBeforeItsCall(t *testing.T) {
	w := localWorld(t, newClass(waitForConsumer))
	onlyN2 := func(_ *cluster.Env, o *Options) {
		o.Topology = places{segments: map[string]string{csidriver.TopologyKey: "n2"}}
	}
	w.crashAs("create/intent", w.withInstance("n1", onlyN2), func() { w.Add(newClaim("a", onNode("n2"))) })
	w.crashAs("create/called", w.withInstance("n2", onNodes("n2")), func() {})
	controller, stop := w.run(w.withInstance("n1", onlyN2))
	w.Eventually(func() error {
		if n := controller.quarantined() + w.stored(); n != 2 {
			return fmt.Errorf("%d intents in quarantine, %d stored", controller.quarantined(), w.stored())
		}
		return nil
	})
	stop()
	w.run(w.withInstance("n2", onNodes("n2")))
	w.complete(1)
}

// started makes a central process with the driver of a node that has read the intents
// and acts only when the test calls it.
func (w *world) started(instance string) *Controller {
	w.t.Helper()
	env, o := w.NewEnv(), Options{ForgetAfter: time.Millisecond, SlowRetry: time.Hour}
	env.DriverNode = instance
	central()(env, &o)
	c := New(env, o)
	env.Set.Start(w.Context())
	if err := env.Set.Wait(w.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := c.intents.Load(w.Context()); err != nil {
		w.t.Fatal(err)
	}
	go func() { _ = c.intents.Run(w.Context()) }()
	return c
}

// TestDeployment_theMarkOfAnotherProcessStays: a central process has read the intent of
// a node whose process still ends. The node marks the intent and creates the
// PersistentVolume, which an administrator retains and deletes with the claim. The
// intent that the central process has in memory lacks the mark.
func TestDeployment_theMarkOfAnotherProcessStays(t *testing.T) {
	for name, instance := range map[string]string{"of the same instance": "n1", "of another instance": "n2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
			asN1 := func(env *cluster.Env, o *Options) { onNodes("n1")(env, o); env.DriverNode = "n1" }
			w.crashAs("create/called", asN1, func() { w.Add(newClaim("a", onNode("n1"))) })
			c := w.started(instance)
			w.changeIntents(func(text string) string { return strings.Replace(text, `"unsaved":true,`, "", 1) })
			w.Delete(newClaim("a"))
			intent, ok := c.intents.Get("uid-a")
			if !ok || !intent.Unsaved {
				t.Fatalf("the intent in memory: %+v, %t", intent, ok)
			}
			if _, err := c.resume(w.Context(), nil, intent); err != nil {
				t.Fatal(err)
			}
			w.retained("a")
			w.volumeStays()
		})
	}
}

// TestDeployment_aChangeKeepsThatOfAnotherProcess: two processes change an intent, each
// without the knowledge of the other's change. A lost mark or instance could let a
// process take a rejection for proof that no volume exists.
func TestDeployment_aChangeKeepsThatOfAnotherProcess(t *testing.T) {
	const instances, unsaved = `"instances":["n1"],`, `"unsaved":true,`
	for name, row := range map[string]struct {
		other, replaced string // what the other process changes
		change          func(*Controller, context.Context, volumeIntent) error
		want            volumeIntent
	}{
		"a mark": {instances, `"instances":["n1","n2"],`, func(c *Controller, ctx context.Context, i volumeIntent) error {
			_, err := c.markSaving(ctx, i)
			return err
		}, volumeIntent{Instances: []string{"n1", "n2"}}},
		"an instance": {unsaved, "", func(c *Controller, ctx context.Context, i volumeIntent) error {
			c.env.DriverNode = "n3"
			_, _, err := c.addInstance(ctx, i)
			return err
		}, volumeIntent{Instances: []string{"n1", "n3"}}},
		"a quarantine": {instances + unsaved, `"instances":["n1","n2"],`, func(c *Controller, ctx context.Context, i volumeIntent) error {
			_, err := c.quarantine(ctx, i, errors.New("unknown"))
			return err
		}, volumeIntent{Instances: []string{"n1", "n2"}, Quarantine: "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
			asN1 := func(env *cluster.Env, o *Options) { onNodes("n1")(env, o); env.DriverNode = "n1" }
			w.crashAs("create/called", asN1, func() { w.Add(newClaim("a", onNode("n1"))) })
			c := w.started("n1")
			w.changeIntents(func(text string) string { return strings.Replace(text, row.other, row.replaced, 1) })
			intent, _ := c.intents.Get("uid-a")
			if err := row.change(c, w.Context(), intent); err != nil {
				t.Fatal(err)
			}
			stored, found, err := c.intents.Reread(w.Context(), "uid-a")
			if err != nil || !found {
				t.Fatal(found, err)
			}
			if stored.Quarantine != row.want.Quarantine || stored.Unsaved || !slices.Equal(stored.Instances, row.want.Instances) {
				t.Errorf("quarantine %q, unsaved %t, instances %q", stored.Quarantine, stored.Unsaved, stored.Instances)
			}
		})
	}
}
