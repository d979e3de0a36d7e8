package provision

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/csiclient/csitest"
	"github.com/holdfast-csi/holdfast/internal/kube/kubetest"
)

// chance is a driver, and an API server, that fail now and then.
type chance struct {
	*world
	mu     sync.Mutex
	random *rand.Rand
	calm   bool
	open   map[string]*csi.CreateVolumeRequest // without a final answer yet, by name
	wrong  []string
}

func newChance(t *testing.T, seed uint64, w *world) *chance {
	c := &chance{world: w, random: rand.New(rand.NewPCG(seed, 0)), open: map[string]*csi.CreateVolumeRequest{}}
	t.Logf("seed %d", seed)
	w.Driver.Before, w.Driver.After = c.beforeCall, c.afterCall
	w.React("*", "*", func(q kubetest.Request) error {
		if q.Verb == "list" || q.Verb == "watch" || q.Resource == "persistentvolumeclaims" || !c.one(8) {
			return nil
		}
		return fmt.Errorf("etcdserver: leader changed")
	})
	return c
}

// one is true once in n times, while there is no calm.
func (c *chance) one(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.calm && c.random.IntN(n) == 0
}

// beforeCall fails calls that then have done nothing, and sees to it that a
// request without a final answer is repeated word for word.
func (c *chance) beforeCall(ctx context.Context, rpc string, request any) error {
	if err := c.before(ctx, rpc, request); err != nil {
		return err
	}
	create, is := request.(*csi.CreateVolumeRequest)
	if !is {
		if rpc == "DeleteVolume" && c.one(4) {
			return csitest.Fail(codes.Unavailable, "away")
		}
		return nil
	}
	_, exists := c.Driver.Volumes()[create.GetName()]
	uncertain, final := c.one(4), c.one(6)
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier := c.open[create.GetName()]; earlier != nil && !proto.Equal(earlier, create) {
		c.wrong = append(c.wrong, fmt.Sprintf("%v, then %v", earlier, create))
	}
	c.open[create.GetName()] = create
	switch {
	case uncertain:
		return csitest.Fail(codes.DeadlineExceeded, "slow")
	case final && !exists:
		delete(c.open, create.GetName())
		return csitest.Fail(codes.Internal, "broken")
	}
	return nil
}

// afterCall loses answers of calls that have done what they should.
func (c *chance) afterCall(_ context.Context, rpc string, request any) error {
	lost := c.one(4)
	if create, is := request.(*csi.CreateVolumeRequest); is && !lost {
		c.mu.Lock()
		delete(c.open, create.GetName())
		c.mu.Unlock()
	}
	if lost && (rpc == "CreateVolume" || rpc == "DeleteVolume") {
		return csitest.Fail(codes.Unavailable, "the answer was lost")
	}
	return nil
}

// TestModel_randomEventsAndCrashes: whatever happens in whatever order, each
// volume ends with exactly one PersistentVolume, and nothing is left over.
func TestModel_randomEventsAndCrashes(t *testing.T) {
	points := append(createPoints(), "undo/answered", "undo/deleted", "delete/called", "delete/removed")
	for range 8 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			c := newChance(t, seed, w)
			choose := rand.New(rand.NewPCG(seed, 1))
			w.controllerManager()
			_, bury := w.mortal(points[choose.IntN(len(points))])
			alive := map[string]*corev1.PersistentVolumeClaim{}
			for i := range 40 {
				switch choose.IntN(6) {
				case 0, 1, 2:
					name := fmt.Sprint("c", i)
					alive[name] = newClaim(name)
					w.Add(alive[name])
				case 3:
					for name, pvc := range alive {
						w.Delete(pvc)
						delete(alive, name)
						break
					}
				case 4:
					w.Put(newClass(parameters("tier", fmt.Sprint(i))))
				case 5:
					bury()
					_, bury = w.mortal(points[choose.IntN(len(points))])
				}
				time.Sleep(time.Duration(choose.IntN(8)) * time.Millisecond)
			}
			bury()
			c.mu.Lock()
			c.calm = true
			c.mu.Unlock()
			w.run()
			w.settled(len(alive))
			for _, pvc := range alive {
				w.Delete(pvc)
			}
			w.gone()
			if len(c.wrong) > 0 {
				t.Errorf("requests that changed before a final answer: %v", c.wrong)
			}
		})
	}
}
