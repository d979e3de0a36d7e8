package snapshot

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// chaos is a cluster whose driver and API server fail now and then, and whose
// controller ends at any point.
type chaos struct {
	fixture
	trouble *csidriver.Trouble
	choose  *rand.Rand
	made    int
	alive   map[string]bool
	short   bool            // all snapshots have the same name, of the same volume
	forced  map[string]bool // IDs of snapshots whose contents were deleted by force
	stop    func()
}

func newChaos(t *testing.T, seed uint64) *chaos {
	driver, trouble := csidriver.New(driverName), csidriver.NewTrouble(seed)
	driver.Snapshots.Strict, driver.Snapshots.UnreadyAnswers = true, 1
	driver.Before, driver.After = trouble.Before, trouble.After
	c := &chaos{
		fixture: prepare(t, driver), trouble: trouble, choose: rand.New(rand.NewPCG(seed, 1)),
		alive: map[string]bool{}, forced: map[string]bool{},
	}
	c.short = c.choose.IntN(3) == 0
	fault := func(q apiserver.Request) error {
		if (q.Verb == "patch" || q.Verb == "get") && trouble.OneIn(6) {
			return apierrors.NewTimeoutError("for a test", 0)
		}
		return nil
	}
	c.React("*", "volumesnapshotcontents", fault)
	c.LoseAnswers("*", "volumesnapshotcontents", fault)
	return c
}

// start starts a process whose flags and failing step are its own.
func (c *chaos) start(calm bool) {
	env := c.NewEnv()
	options := Options{Poll: fastPoll()}
	if !calm {
		point := []string{"marked", "called", "status", "deleted", "cleared"}[c.choose.IntN(5)]
		points, err := failpoint.Parse("snapshot/" + point + "=error")
		if err != nil {
			c.t.Fatal(err)
		}
		env.Failpoints, options.Naming = points, claim.Naming{Prefix: fmt.Sprint("p", c.choose.IntN(2))}
	}
	if c.short {
		options.Naming.UIDLength = 3
	}
	c.stop = c.Run(env, New(env, options))
}

func (c *chaos) pick() string {
	names := slices.Sorted(maps.Keys(c.alive))
	if len(names) == 0 {
		return ""
	}
	return names[c.choose.IntN(len(names))]
}

// force deletes a content without its finalizers, while the controller is down:
// what the driver has of it is the administrator's.
func (c *chaos) force(name string) {
	if !c.alive[name] {
		return
	}
	object := c.find(name)
	uid := string(object.Spec.VolumeSnapshotRef.UID)
	if c.short {
		uid = uid[:3]
	}
	for _, prefix := range []string{"snapshot", "p0", "p1"} {
		c.forced["id-"+prefix+"-"+uid] = true
	}
	object.Finalizers = nil
	c.Put(object)
	c.Delete(object)
	delete(c.alive, name)
}

// decide does what the events of contents ask of an administrator: of snapshots with
// one name, the driver cannot report which content a call created one for.
func (c *chaos) decide() {
	if !c.short {
		return
	}
	for _, object := range c.listed() {
		_, marked := object.Annotations[claim.VolumeSnapshotKeys().BeingCreated]
		if !marked || object.DeletionTimestamp == nil || handleOf(&object) != "" {
			continue
		}
		for _, prefix := range []string{"snapshot", "p0", "p1"} {
			c.forced["id-"+prefix+"-"+string(object.Spec.VolumeSnapshotRef.UID)[:3]] = true
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, claim.VolumeSnapshotKeys().BeingCreated)
		_, _ = c.Snapshots.SnapshotV1().VolumeSnapshotContents().
			Patch(c.Context(), object.Name, types.MergePatchType, patch, metav1.PatchOptions{}) // else at the next poll
	}
}

// find reads a content by a list, which no fault disturbs.
func (c *chaos) find(name string) *snapshotv1.VolumeSnapshotContent {
	for _, object := range c.listed() {
		if object.Name == name {
			return &object
		}
	}
	return nil
}

func (c *chaos) erase(name string) {
	if !c.alive[name] {
		return
	}
	// A patch leaves alone what the controller writes at the same time.
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, claim.VolumeSnapshotKeys().BeingDeleted)
	c.Converges(func() error {
		_, err := c.Snapshots.SnapshotV1().VolumeSnapshotContents().Patch(c.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	c.Delete(dynamic(name))
	delete(c.alive, name)
}

// name adds a content for the snapshot of another content, as an administrator does
// who imports it.
func (c *chaos) name(of string) {
	if !c.alive[of] {
		return
	}
	object := c.find(of)
	if handleOf(object) == "" {
		return
	}
	c.made++
	twin := fmt.Sprint("s", c.made)
	added := staticFor(twin, handleOf(object))
	if c.choose.IntN(2) == 0 {
		retain(added)
	}
	c.Add(added)
	c.alive[twin] = true
	if c.choose.IntN(2) == 0 {
		c.erase(of)
	}
}

func (c *chaos) step() {
	switch c.choose.IntN(7) {
	case 0, 1:
		c.made++
		name := fmt.Sprint("s", c.made)
		object := dynamic(name)
		if c.short {
			*object.Spec.Source.VolumeHandle = "vol"
		}
		c.Add(object)
		c.alive[name] = true
	case 2, 3:
		c.erase(c.pick())
	case 4:
		c.Put(class(map[string]string{"tier": fmt.Sprint(c.choose.IntN(3))}))
	case 5:
		c.stop()
		if c.choose.IntN(4) == 0 {
			c.force(c.pick())
		}
		if c.choose.IntN(3) == 0 {
			c.erase(c.pick())
		}
		c.start(false)
	case 6:
		c.name(c.pick())
	}
}

// whole compares the driver's snapshots with the contents.
func (c *chaos) whole() error {
	known, waiting, owner := map[string]bool{}, map[string]string{}, map[string]string{}
	for _, object := range c.listed() {
		handle := handleOf(&object)
		if c.short && handle == "" && len(c.driver.SnapshotsLeft()) > 0 {
			continue // another content has the snapshot of its name
		}
		if !static(&object) && handle != "" {
			if other := owner[handle]; other != "" {
				return fmt.Errorf("contents %s and %s were created with one snapshot, %s", other, object.Name, handle)
			}
			owner[handle] = object.Name
		}
		if object.DeletionTimestamp != nil {
			waiting[object.Name] = handle
			continue
		}
		if !readyAndUnmarked(&object) {
			return fmt.Errorf("content %s: %+v, %+v", object.Name, object.ObjectMeta, object.Status)
		}
		known[handleOf(&object)] = true
	}
	for name, handle := range waiting {
		if !known[handle] {
			return fmt.Errorf("content %s waits, and no other content names its snapshot %q", name, handle)
		}
	}
	for _, id := range c.driver.SnapshotsLeft() {
		if !known[id] && !c.forced[id] {
			return fmt.Errorf("no content knows snapshot %s", id)
		}
		delete(known, id)
	}
	if len(known) > 0 {
		return fmt.Errorf("the driver lacks %v", known)
	}
	return nil
}

// TestModel_randomEventsAndCrashes: whatever happens in whatever order, the driver
// has the snapshots that contents know, and no others.
func TestModel_randomEventsAndCrashes(t *testing.T) {
	for range 6 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := newChaos(t, seed)
			c.start(false)
			for range 40 {
				c.step()
				time.Sleep(time.Duration(c.choose.IntN(8)) * time.Millisecond)
			}
			c.stop()
			c.trouble.Calm()
			c.start(true)
			c.Converges(c.whole)
			for name := range c.alive {
				c.erase(name)
			}
			c.Converges(func() error {
				c.decide()
				if left := len(c.listed()); left > 0 {
					return fmt.Errorf("%d contents remain", left)
				}
				return c.whole()
			})
			// Of contents whose snapshots have one name, each has a request of its own.
			if changed := c.trouble.Changed(); len(changed) > 0 && !c.short {
				t.Errorf("requests that changed before the outcome of the first one was known: %v", changed)
			}
		})
	}
}
