package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// listing is a world whose driver lists its volumes and where they are.
func listing(t *testing.T, objects ...runtime.Object) *world {
	w := newWorld(t, objects...)
	w.driver.Controller = append(w.driver.Controller,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	return w
}

// cycles waits until so many more listings have begun.
func (w *world) cycles(n int) {
	w.t.Helper()
	until := w.driver.Count("ListVolumes") + n
	w.Eventually(func() error {
		if got := w.driver.Count("ListVolumes"); got < until {
			return fmt.Errorf("%d listings, waiting for %d", got, until)
		}
		return nil
	})
}

const often = 20 * time.Millisecond

func TestReconcile_publishesAgainWhatTheDriverDoesNotList(t *testing.T) {
	w := listing(t, volume("pv"), node("n1"), publishedAttachment("va", "pv", "n1"))
	w.run(Options{Reconcile: often})
	w.Eventually(func() error {
		if got := w.driver.Attachments()["handle-pv"]; !slices.Equal(got, []string{"id-n1"}) {
			return fmt.Errorf("published to %v", got)
		}
		return nil
	})
	if n := w.driver.Count("ListVolumes"); n < 2 {
		t.Errorf("it was published again after %d listings", n)
	}
	w.cycles(4)
	if n := w.driver.Count("ControllerPublishVolume"); n != 1 {
		t.Errorf("published %d times", n)
	}
}

func TestReconcile_unpublishesAgainWhatOnlyOtherFinalizersKeep(t *testing.T) {
	va := publishedAttachment("va", "pv", "n1", func(va *storagev1.VolumeAttachment) {
		va.Finalizers = []string{"example.com/other"}
		va.Status.Attached = false
		deleting(va)
	})
	w := listing(t, volume("pv"), node("n1"), va)
	w.driver.SetAttached("handle-pv", "id-n1", true)
	w.run(Options{Reconcile: often})
	w.Eventually(func() error {
		if published := w.driver.Attachments(); len(published) > 0 {
			return fmt.Errorf("published: %v", published)
		}
		return nil
	})
}

func TestReconcile_ignoresADriftOfOneListing(t *testing.T) {
	// Every second listing lacks the volume: it never lacks twice in a row.
	w := listing(t, volume("pv"), node("n1"), publishedAttachment("va", "pv", "n1"))
	w.driver.SetAttached("handle-pv", "id-n1", true)
	var lists atomic.Int32
	w.driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "ListVolumes" {
			w.driver.SetAttached("handle-pv", "id-n1", lists.Add(1)%2 == 0)
		}
		return nil
	}
	w.run(Options{Reconcile: often})
	w.cycles(8)
	if n := w.driver.Count("ControllerPublishVolume"); n > 0 {
		t.Errorf("published %d times", n)
	}
}

func TestReconcile_ignoresAnIncompleteListing(t *testing.T) {
	// The second page always fails; the volume would be on it.
	w := listing(t, volume("pv"), node("n1"), publishedAttachment("va", "pv", "n1"))
	w.driver.Attach.PageSize = 1
	w.driver.SetAttached("a-volume", "id-n1", true)
	w.driver.SetAttached("handle-pv", "id-n1", true)
	w.driver.Before = func(_ context.Context, _ string, request any) error {
		if q, ok := request.(*csi.ListVolumesRequest); ok && q.GetStartingToken() != "" {
			return csidriver.Fail(codes.Internal, "no page")
		}
		return nil
	}
	w.run(Options{Reconcile: often})
	w.cycles(6)
	if n := w.driver.Count("ControllerPublishVolume"); n > 0 {
		t.Errorf("published %d times", n)
	}
}

func TestReconcile_restartsWhenAPageTokenIsRejected(t *testing.T) {
	w := listing(t, volume("pv"), node("n1"), publishedAttachment("va", "pv", "n1"))
	w.driver.Attach.PageSize = 1
	w.driver.SetAttached("a-volume", "id-n1", true)
	w.driver.SetAttached("b-volume", "id-n1", true)
	var refused atomic.Int32
	w.driver.Before = func(_ context.Context, _ string, request any) error {
		if q, ok := request.(*csi.ListVolumesRequest); ok && q.GetStartingToken() != "" && refused.Add(1) <= 4 {
			return csidriver.Fail(codes.Aborted, "the listing has changed")
		}
		return nil
	}
	w.run(Options{Reconcile: time.Hour})
	c := New(w.NewEnv(), Options{Reconcile: -1})
	stop := w.Run(c.env, c)
	defer stop()
	drifts, err := c.reconcile(t.Context(), nil)
	if err != nil || len(drifts) != 1 {
		t.Errorf("found %v, %v", drifts, err)
	}
	refused.Store(-1000)
	if _, err := c.reconcile(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the listing has changed") {
		t.Errorf("a token that is always refused: %v", err)
	}
}

func TestReconcile_eachPageHasItsOwnTimeout(t *testing.T) {
	w := listing(t, volume("pv"), node("n1"), publishedAttachment("va", "pv", "n1"))
	w.driver.Attach.PageSize = 1
	for i := range 5 {
		w.driver.SetAttached(fmt.Sprintf("volume-%d", i), "id-n1", true)
	}
	var ends []time.Time // of the time of each page
	w.driver.Before = func(ctx context.Context, rpc string, _ any) error {
		if rpc == "ListVolumes" {
			end, _ := ctx.Deadline()
			ends = append(ends, end)
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	}
	c := New(w.Env, Options{Reconcile: -1})
	w.Run(w.Env, c)
	if found, err := c.reconcile(t.Context(), nil); err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
	if len(ends) != 5 {
		t.Errorf("%d pages", len(ends))
	}
	for i, end := range ends[1:] {
		if spared := end.Sub(ends[i]); spared < 10*time.Millisecond {
			t.Errorf("page %d ends %v after the one before, which took more", i+1, spared)
		}
	}
}

func TestReconcile_endsAListingThatRepeatsAToken(t *testing.T) {
	w := listing(t, volume("pv"), node("n1"), publishedAttachment("va", "pv", "n1"))
	c := New(w.Env, Options{Reconcile: -1, MaxEntries: 1})
	w.Run(w.Env, c)
	w.driver.SetAttached("a-volume", "id-n1", true)
	w.driver.SetAttached("b-volume", "id-n1", true)
	w.driver.Before = func(_ context.Context, _ string, request any) error {
		if q, ok := request.(*csi.ListVolumesRequest); ok {
			q.StartingToken = "" // every page is the first
		}
		return nil
	}
	if _, err := c.reconcile(t.Context(), nil); !errors.Is(err, errEndless) {
		t.Errorf("ended with %v", err)
	}
}

func TestReconcile_ignoresWhatCannotBeCompared(t *testing.T) {
	w := listing(t, volume("pv"), node("n1"),
		publishedAttachment("gone-node", "pv", "n2"), publishedAttachment("gone-volume", "absent", "n1"),
		publishedAttachment("foreign", "pv", "n1", func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other.example.com" }))
	w.run(Options{Reconcile: often})
	time.Sleep(5 * often)
	if calls := w.driver.Calls(); len(calls) > 0 {
		t.Errorf("calls %q", calls)
	}
}

func TestReconcile_isOffForADriverWithoutPublishedNodes(t *testing.T) {
	w := listing(t, volume("pv"), node("n1"), publishedAttachment("va", "pv", "n1"))
	w.driver.Controller = w.driver.Controller[:len(w.driver.Controller)-1]
	w.run(Options{Reconcile: often})
	time.Sleep(5 * often)
	if calls := w.driver.Calls(); len(calls) > 0 {
		t.Errorf("calls %q", calls)
	}
}

func TestReconcile_retriesWhatFailed(t *testing.T) {
	w := listing(t, volume("pv"), node("n1"), publishedAttachment("va", "pv", "n1"))
	w.driver.Before = times(3, "ControllerPublishVolume", csidriver.Fail(codes.Internal, "no"))
	w.run(Options{Reconcile: often})
	w.Eventually(func() error {
		if got := w.driver.Attachments()["handle-pv"]; !slices.Equal(got, []string{"id-n1"}) {
			return fmt.Errorf("published to %v", got)
		}
		return nil
	})
	w.Eventually(func() error {
		if shown := w.attachment("va").Status.AttachError; shown != nil {
			return fmt.Errorf("the error stays: %+v", shown)
		}
		return nil
	})
}

func TestReconcile_forgetsADriftWhenTheAttachmentChanges(t *testing.T) {
	va := publishedAttachment("va", "pv", "n1")
	va.UID = "uid"
	w := listing(t, volume("pv"), node("n1"), va)
	c := New(w.Env, Options{Reconcile: -1})
	w.Run(w.Env, c)

	seen := drift{attached: true}
	found, err := c.reconcile(t.Context(), map[types.UID]drift{"uid": {attached: false}})
	if err != nil || found["uid"] != seen || c.forced.is("uid") {
		t.Errorf("another status counted as drift: found %v, %v, forced %t", found, err, c.forced.is("uid"))
	}

	// It is deleted while the volumes are listed.
	w.driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc != "ListVolumes" {
			return csidriver.Fail(codes.Internal, "no")
		}
		w.Delete(va)
		w.Eventually(func() error {
			if now, _ := c.attachments.Get("va"); now.DeletionTimestamp == nil {
				return errors.New("the deletion is not seen yet")
			}
			return nil
		})
		return nil
	}
	found, err = c.reconcile(t.Context(), map[types.UID]drift{"uid": seen})
	if err != nil || len(found) > 0 || c.forced.is("uid") {
		t.Errorf("it is deleted by now: found %v, %v, forced %t", found, err, c.forced.is("uid"))
	}
}
