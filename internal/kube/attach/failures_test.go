package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// times fails the first n calls of an RPC with an error.
func times(n int32, rpc string, err error) func(context.Context, string, any) error {
	var called atomic.Int32
	return func(_ context.Context, name string, _ any) error {
		if name == rpc && called.Add(1) <= n {
			return err
		}
		return nil
	}
}

func TestAttach_showsTheDriversErrorWithItsCodeAndClearsIt(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Canceled, codes.Unknown, codes.InvalidArgument, codes.DeadlineExceeded, codes.NotFound, codes.AlreadyExists,
		codes.PermissionDenied, codes.ResourceExhausted, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange,
		codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss, codes.Unauthenticated,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, volume("pv"), node("n1"))
			var heal atomic.Bool
			w.driver.Before = func(_ context.Context, rpc string, _ any) error {
				if rpc == "ControllerPublishVolume" && !heal.Load() {
					return csidriver.Fail(code, "the driver's words "+strings.Repeat("ж", 3000))
				}
				return nil
			}
			w.run()
			w.Add(attachment("va", "pv", "n1"))
			shown := w.fails("va")
			if shown.ErrorCode == nil || *shown.ErrorCode != int32(code) || !strings.Contains(shown.Message, "the driver's words") || len(shown.Message) > cluster.MaxMessage { //nolint:gosec // codes are small
				t.Errorf("shown: %+v", shown)
			}
			heal.Store(true)
			if va := w.attached("va"); va.Status.AttachError != nil {
				t.Errorf("the error stays: %+v", va.Status.AttachError)
			}
		})
	}
}

func TestDetach_showsTheDriversErrorAndKeepsTheAttachment(t *testing.T) {
	va := publishedAttachment("va", "pv", "n1")
	w := newWorld(t, volume("pv"), node("n1"), va)
	w.driver.SetAttached("handle-pv", "id-n1", true)
	var heal atomic.Bool
	w.driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "ControllerUnpublishVolume" && !heal.Load() {
			return csidriver.Fail(codes.Internal, "stuck")
		}
		return nil
	}
	w.run()
	w.Delete(va)
	if shown := w.fails("va"); shown.ErrorCode == nil || *shown.ErrorCode != int32(codes.Internal) {
		t.Errorf("shown: %+v", shown)
	}
	if !slices.Contains(w.attachment("va").Finalizers, finalizer) {
		t.Error("the finalizer went before the volume was unpublished")
	}
	heal.Store(true)
	w.gone("va")
	w.published(nil)
}

func TestAttach_aCallOfADriverThatHangsTimesOutAndIsRepeated(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.Env.Timeout = 50 * time.Millisecond
	var heal atomic.Bool
	w.driver.Before = func(ctx context.Context, rpc string, _ any) error {
		if rpc == "ControllerPublishVolume" && !heal.Load() {
			<-ctx.Done()
			return errors.New("a plain error after the deadline")
		}
		return nil
	}
	w.run()
	w.Add(attachment("va", "pv", "n1"))
	if shown := w.fails("va"); shown.ErrorCode == nil || *shown.ErrorCode != int32(codes.DeadlineExceeded) {
		t.Errorf("shown: %+v", shown)
	}
	heal.Store(true)
	w.attached("va")
}

func TestAttach_theCallOfADriverThatDiedAfterPublishingIsRepeated(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.driver.After = times(1, "ControllerPublishVolume", csidriver.Fail(codes.Unavailable, "connection lost"))
	w.run()
	w.Add(attachment("va", "pv", "n1"))
	w.attached("va")
	if n := w.driver.Count("ControllerPublishVolume"); n != 2 {
		t.Errorf("published %d times", n)
	}
}

func TestAttach_showsADriverThatFailsToAnswerItsCapabilities(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.driver.Before = times(2, "ControllerGetCapabilities", csidriver.Fail(codes.Unavailable, "starting"))
	w.run()
	w.Add(attachment("va", "pv", "n1"))
	if shown := w.fails("va"); shown.ErrorCode == nil || *shown.ErrorCode != int32(codes.Unavailable) {
		t.Errorf("shown: %+v", shown)
	}
	w.attached("va")
}

func TestAttach_aPublishContextThatKubernetesCannotStoreIsAnError(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.driver.Attach.Context = map[string]string{"blob": strings.Repeat("x", maximumContext)}
	w.run()
	va := attachment("va", "pv", "n1")
	w.Add(va)
	if shown := w.fails("va"); !strings.Contains(shown.Message, "the publish context has 262148 bytes") {
		t.Errorf("shown: %s", shown.Message)
	}
	w.detaches(va) // what was published despite the error is undone
}

func TestAttach_replacesThePublishContextAsAWhole(t *testing.T) {
	va := publishedAttachment("va", "pv", "n1")
	va.Status.AttachmentMetadata = map[string]string{"old": "1", "device": "0"}
	va.Status.Attached = false
	w := newWorld(t, volume("pv"), node("n1"), va)
	w.run()
	if got := w.attached("va").Status.AttachmentMetadata; !maps.Equal(got, map[string]string{"device": "1"}) {
		t.Errorf("attachmentMetadata %v", got)
	}
}

// Any single request to the API server may fail: in the end the volume is attached, then
// detached, and the object is deleted.
func TestAttach_outlastsTheAPIServer(t *testing.T) {
	resource := schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}
	answers := map[string]error{
		"conflict":    apierrors.NewConflict(resource, "va", errors.New("changed")),
		"guard":       apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", resource, "va", "test failed", 0, false),
		"unavailable": apierrors.NewServiceUnavailable("restarting"),
		"internal":    apierrors.NewInternalError(errors.New("etcd")),
		"timeout":     apierrors.NewTimeoutError("slow", 0),
		"forbidden":   apierrors.NewForbidden(resource, "va", errors.New("RBAC")),
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, volume("pv"), node("n1"))
			seen := map[string]*atomic.Int32{}
			for _, part := range []string{"persistentvolumes/", "volumeattachments/", "volumeattachments/status"} {
				seen[part] = &atomic.Int32{}
			}
			w.React("patch", "*", func(q apiserver.Request) error {
				if n := seen[q.Resource+"/"+q.Subresource].Add(1); n <= 3 {
					return answer
				}
				return nil
			})
			w.run()
			va := attachment("va", "pv", "n1")
			w.Add(va)
			w.attached("va")
			w.published(map[string][]string{"handle-pv": {"id-n1"}})
			for _, n := range seen {
				n.Store(0)
			}
			w.detaches(va)
		})
	}
}

func TestAttach_honours429(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	var refused, shown atomic.Int32
	w.React("patch", "volumeattachments", func(q apiserver.Request) error {
		if strings.Contains(string(q.Body), attachError+`":{`) {
			shown.Add(1)
		}
		if refused.Add(1) == 1 {
			return apierrors.NewTooManyRequests("priority and fairness", 1)
		}
		return nil
	})
	w.run()
	begin := time.Now()
	w.Add(attachment("va", "pv", "n1"))
	w.attached("va")
	if waited := time.Since(begin); waited < time.Second || shown.Load() > 0 {
		t.Errorf("waited %v of the second that was asked for, and showed %d errors", waited, shown.Load())
	}
}

func TestAttach_showsNoConflictToTheUser(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.React("patch", "volumeattachments", func(q apiserver.Request) error {
		if q.Subresource == "status" && strings.Contains(string(q.Body), attachError+`":{`) {
			t.Errorf("wrote %s", q.Body)
		}
		return nil
	})
	var once atomic.Bool
	w.React("patch", "persistentvolumes", func(apiserver.Request) error {
		if once.CompareAndSwap(false, true) {
			return apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumes"}, "pv", errors.New("changed"))
		}
		return nil
	})
	w.run()
	w.Add(attachment("va", "pv", "n1"))
	w.attached("va")
}

// TestAttach_showsThatThePersistentVolumeWasDeletedMeanwhile: the controller's cache still
// has the PersistentVolume when it adds the finalizer.
func TestAttach_showsThatThePersistentVolumeWasDeletedMeanwhile(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.Env.Retry.Start, w.Env.Retry.Max = time.Hour, time.Hour // only the first try
	w.React("patch", "persistentvolumes", func(q apiserver.Request) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "persistentvolumes"}, q.Name)
	})
	c := New(w.Env, Options{Reconcile: -1})
	w.Run(w.Env, c)
	w.Add(attachment("va", "pv", "n1"))
	if shown := w.fails("va"); !strings.Contains(shown.Message, "PersistentVolume pv: it does not exist") {
		t.Errorf("shown: %s", shown.Message)
	}
	w.Eventually(func() error {
		if c.attaching.Failures("va") == 0 {
			return errors.New("no retry is due")
		}
		return nil
	})
}

func TestAttach_publishesNothingIfTheAttachmentIsDeletedWhileTheVolumeIsProtected(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	va := attachment("va", "pv", "n1")
	va.Finalizers = []string{"example.com/other"}
	var once atomic.Bool
	w.React("patch", "persistentvolumes", func(apiserver.Request) error {
		if once.CompareAndSwap(false, true) {
			w.Delete(va)
		}
		return nil
	})
	w.run()
	w.Add(va)
	w.Eventually(func() error {
		if !once.Load() || w.attachment("va").DeletionTimestamp == nil {
			return errors.New("not deleted yet")
		}
		return nil
	})
	w.Never(100*time.Millisecond, func() error {
		if calls := w.driver.Calls(); len(calls) > 0 {
			return fmt.Errorf("calls %q", calls)
		}
		return nil
	})
}

func TestAttach_continuesAfterTheWatchesBroke(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.run()
	w.BreakWatches()
	va := attachment("va", "pv", "n1")
	w.Add(va)
	w.attached("va")
	w.BreakWatches()
	w.detaches(va)
}

func TestAttach_keepsAFinalizerThatIsAddedMeanwhile(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	var once atomic.Bool
	w.React("patch", "volumeattachments", func(q apiserver.Request) error {
		if q.Subresource == "" && once.CompareAndSwap(false, true) {
			other := w.attachment("va")
			other.Finalizers = []string{"example.com/other"}
			w.Put(other)
		}
		return nil
	})
	w.run()
	w.Add(attachment("va", "pv", "n1"))
	if va := w.attached("va"); !slices.Equal(va.Finalizers, []string{"example.com/other", finalizer}) {
		t.Errorf("finalizers %q", va.Finalizers)
	}
}

func TestAttach_itsOwnErrorInTheStatusCausesNoRetry(t *testing.T) {
	w := newWorld(t, volume("pv"), node("n1"))
	w.Env.Retry.Start, w.Env.Retry.Max = time.Hour, time.Hour
	w.driver.Before = times(1000, "ControllerPublishVolume", csidriver.Fail(codes.Internal, "no"))
	w.run()
	w.Add(attachment("va", "pv", "n1"))
	w.fails("va")
	w.Never(100*time.Millisecond, func() error {
		if n := w.driver.Count("ControllerPublishVolume"); n != 1 {
			return fmt.Errorf("called %d times", n)
		}
		return nil
	})
}
