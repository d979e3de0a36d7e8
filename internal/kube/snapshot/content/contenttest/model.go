package contenttest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// chaos is a cluster whose driver and API server fail now and then, and whose
// controller ends at any point.
type chaos[T cluster.Object] struct {
	*Fixture[T]
	trouble *csidriver.Trouble
	choose  *rand.Rand
	made    int
	alive   map[string]bool
	short   bool            // all snapshots have the same name, of the same volume
	forced  map[string]bool // IDs of snapshots whose contents were deleted by force
	stop    func()
}

func (s *Suite[T]) newChaos(t *testing.T, seed uint64) *chaos[T] {
	driver, trouble := csidriver.New(Driver), csidriver.NewTrouble(seed)
	driver.Snapshots.Strict, driver.Groups.Strict, driver.Snapshots.UnreadyAnswers = true, true, 1
	driver.Before, driver.After = trouble.Before, trouble.After
	c := &chaos[T]{
		Fixture: s.prepare(t, driver), trouble: trouble, choose: rand.New(rand.NewPCG(seed, 1)),
		alive: map[string]bool{}, forced: map[string]bool{},
	}
	c.short = c.choose.IntN(3) == 0
	fault := func(q apiserver.Request) error {
		if (q.Verb == "patch" || q.Verb == "get") && trouble.OneIn(6) {
			return apierrors.NewTimeoutError("for a test", 0)
		}
		return nil
	}
	c.React("*", s.resource(), fault)
	c.LoseAnswers("*", s.resource(), fault)
	return c
}

// start starts a process whose flags and failing step are its own.
func (c *chaos[T]) start(faultless bool) {
	env, o := c.NewEnv(), options()
	if !faultless {
		point := []string{"marked", "called", "status", "deleted", "cleared"}[c.choose.IntN(5)]
		points, err := failpoint.Parse(c.suite.Traits.Failpoints + "/" + point + "=error")
		if err != nil {
			c.t.Fatal(err)
		}
		env.Failpoints, o.Naming = points, claim.Naming{Prefix: fmt.Sprint("p", c.choose.IntN(2))}
	}
	if c.short {
		o.Naming.UIDLength = 3
	}
	c.stop = c.Run(env, c.suite.New(env, o))
}

func (c *chaos[T]) pick() string {
	names := slices.Sorted(maps.Keys(c.alive))
	if len(names) == 0 {
		return ""
	}
	return names[c.choose.IntN(len(names))]
}

// handOver leaves the snapshots that a content may have to the administrator.
func (c *chaos[T]) handOver(object T) {
	uid := string(c.suite.View(object).UID)
	if c.short {
		uid = uid[:3]
	}
	for _, prefix := range []string{c.suite.Prefix, "p0", "p1"} {
		c.forced["id-"+prefix+"-"+uid] = true
	}
}

// force deletes a content without its finalizers, while the controller is down.
func (c *chaos[T]) force(name string) {
	if !c.alive[name] {
		return
	}
	object := c.Get(name)
	c.handOver(object)
	c.suite.Unfinalized(object)
	c.Put(object)
	c.Delete(object)
	delete(c.alive, name)
}

// decide does what the events of contents ask of an administrator: of snapshots with
// one name, the driver cannot report which content a call created one for.
func (c *chaos[T]) decide() {
	for _, object := range c.listed() {
		if c.short && c.suite.IsMarked(object) && object.GetDeletionTimestamp() != nil && c.suite.View(object).Handle == "" {
			c.handOver(object)
			_ = c.annotate(object.GetName(), c.suite.Traits.Keys.BeingCreated, "null") // else at the next poll
		}
	}
}

// annotate sets an annotation to a JSON value. A patch keeps what the controller writes
// at the same time.
func (c *chaos[T]) annotate(name, key, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, value)
	_, err := c.suite.API(c.Cluster).Patch(c.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// erase deletes a content as its user does.
func (c *chaos[T]) erase(name string) {
	if !c.alive[name] {
		return
	}
	c.Converges(func() error { return c.annotate(name, c.suite.Traits.Keys.BeingDeleted, `"yes"`) })
	c.Delete(c.suite.Make(name))
	delete(c.alive, name)
}

func (c *chaos[T]) add(object T) {
	c.Add(object)
	c.alive[object.GetName()] = true
}

func (c *chaos[T]) newName() string {
	c.made++
	return fmt.Sprint("s", c.made)
}

// adopt adds a content for the snapshot of another content, as an administrator does
// who imports it.
func (c *chaos[T]) adopt(of string) {
	if !c.alive[of] {
		return
	}
	object := c.Get(of)
	handle := c.suite.View(object).Handle
	if handle == "" {
		return
	}
	twin := c.suite.Static(c.newName(), Snapshot{handle, c.suite.Members(object)})
	if c.choose.IntN(2) == 0 {
		c.suite.Retain(twin)
	}
	c.add(twin)
	if c.choose.IntN(2) == 0 {
		c.erase(of)
	}
}

func (c *chaos[T]) step() {
	switch c.choose.IntN(7) {
	case 0, 1:
		object := c.suite.Make(c.newName())
		if c.short {
			c.suite.Of(object, "vol")
		}
		c.add(object)
	case 2, 3:
		c.erase(c.pick())
	case 4:
		c.Put(c.suite.Class(ClassName, Driver, map[string]string{"tier": fmt.Sprint(c.choose.IntN(3))}))
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
		c.adopt(c.pick())
	}
}

// check compares the driver's snapshots with the contents.
func (c *chaos[T]) check() error {
	known, waiting, owner := map[string]bool{}, map[string]string{}, map[string]string{}
	left := c.suite.Left(c.Driver)
	for _, object := range c.listed() {
		v := c.suite.View(object)
		if c.short && v.Handle == "" && len(left) > 0 {
			continue // another content has the snapshot of its name
		}
		if !v.Static && v.Handle != "" {
			if other := owner[v.Handle]; other != "" {
				return fmt.Errorf("contents %s and %s were created with one snapshot, %s", other, v.Meta.Name, v.Handle)
			}
			owner[v.Handle] = v.Meta.Name
		}
		if v.Meta.DeletionTimestamp != nil {
			waiting[v.Meta.Name] = v.Handle
			continue
		}
		if !c.suite.IsDone(object) {
			return fmt.Errorf("content %s is not ready or is marked: %+v", v.Meta.Name, v)
		}
		known[v.Handle] = true
	}
	for name, handle := range waiting {
		if !known[handle] {
			return fmt.Errorf("content %s waits, and no other content names its snapshot %q", name, handle)
		}
	}
	for _, id := range left {
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

// model: after any events in any order, the driver has the snapshots that contents
// know, and no others.
func (s *Suite[T]) model(t *testing.T) {
	for range 6 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := s.newChaos(t, seed)
			c.start(false)
			for range 40 {
				c.step()
				time.Sleep(time.Duration(c.choose.IntN(8)) * time.Millisecond)
			}
			c.stop()
			c.trouble.Calm()
			c.start(true)
			c.Converges(c.check)
			for name := range c.alive {
				c.erase(name)
			}
			c.Converges(func() error {
				c.decide()
				if left := len(c.listed()); left > 0 {
					return fmt.Errorf("%d contents remain", left)
				}
				return c.check()
			})
			// Of contents whose snapshots have one name, each has a request of its own.
			if changed := c.trouble.Changed(); len(changed) > 0 && !c.short {
				t.Errorf("requests that changed before the outcome of the first one was known: %v", changed)
			}
		})
	}
}
