package provision

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// running starts a provisioner and returns its environment.
func (w *world) running(change ...func(*cluster.Env, *Options)) (env *cluster.Env) {
	w.t.Helper()
	w.run(append(change, func(e *cluster.Env, _ *Options) { env = e })...)
	return env
}

func TestOperations_aClaimByTheReasonOfItsLastFailure(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		reason string
	}{
		"the driver is away":    {csidriver.Fail(codes.Unavailable, "away"), "Unavailable"},
		"the class is rejected": {csidriver.Fail(codes.InvalidArgument, "no such tier"), "InvalidArgument"},
		"no space":              {csidriver.Fail(codes.ResourceExhausted, "full"), "ResourceExhausted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			for range 10_000 {
				w.answer(c.answer)
			}
			env := w.running()
			w.Add(newClaim("a"))
			w.Unfinished(env, provisionOperation, c.reason, 1)
			w.mu.Lock()
			w.answers = nil
			w.mu.Unlock()
			if pvc := w.claimNow("a"); c.reason == "InvalidArgument" { // else it waits for an hour
				pvc.Annotations[selectedNodeAnnotation] = "n"
				w.Put(pvc)
			}
			w.saved("pvc-uid-a")
			w.Unfinished(env, provisionOperation, c.reason, 0)
		})
	}
}

func TestOperations_aCallThatHangsIsRunningSinceTheClaimExists(t *testing.T) {
	w := newWorld(t, newClass())
	w.Driver.Before = func(ctx context.Context, rpc string, _ any) error {
		if rpc == "CreateVolume" {
			<-ctx.Done()
		}
		return nil
	}
	env := w.running(func(env *cluster.Env, _ *Options) { env.Timeout = time.Hour })
	w.Add(newClaim("a", func(pvc *corev1.PersistentVolumeClaim) {
		pvc.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	}))
	w.Unfinished(env, provisionOperation, "running", 1)
	w.Eventually(func() error {
		if n := len(w.Driver.Calls()); n == 0 {
			return errors.New("CreateVolume is not called")
		}
		return nil
	})
	if age := w.Metrics(env)["holdfast_operation_oldest_seconds d.example provision running"]; age < 3600 || age > 3700 {
		t.Errorf("the claim waits for %v s, want an hour", age)
	}
}

func TestOperations_noClass(t *testing.T) {
	w := newWorld(t)
	env := w.running()
	w.Add(newClaim("a", func(pvc *corev1.PersistentVolumeClaim) {
		pvc.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	}))
	w.Unfinished(env, provisionOperation, "waiting", 1)
	if age := w.Metrics(env)["holdfast_operation_oldest_seconds d.example provision waiting"]; age < 3600 || age > 3700 {
		t.Errorf("the claim waits for %v s, want an hour", age)
	}
}

func TestOperations_aClaimThatNoPodUsesIsNone(t *testing.T) {
	w := newWorld(t, newClass(waitForConsumer), newClaim("used", onNode("n")), newClaim("unused"))
	for range 10_000 {
		w.answer(csidriver.Fail(codes.Unavailable, "away"))
	}
	env := w.running()
	w.Unfinished(env, provisionOperation, "Unavailable", 1)
	w.Unfinished(env, provisionOperation, "waiting", 0)
}

func TestOperations_quarantinedAndRejectedByKubernetes(t *testing.T) {
	w := newWorld(t, append(bound("src"), newClass())...)
	w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
	w.crash("create/called", func() { w.Add(newClaim("a", cloneOf("src"))) })
	w.answer(csidriver.Fail(codes.NotFound, "no such source"))
	env := w.running()
	w.Unfinished(env, provisionOperation, "quarantined", 1)
	if n := w.Metrics(env)["holdfast_provision_quarantined_intents"]; n != 1 {
		t.Errorf("%v quarantined intents", n)
	}
}

func TestOperations_aDeletionSinceTheRelease(t *testing.T) {
	hourAgo := metav1.NewTime(time.Now().Add(-time.Hour))
	w := newWorld(t, newClass(), newVolume("a", released, func(pv *corev1.PersistentVolume) { pv.Status.LastPhaseTransitionTime = &hourAgo }))
	w.Driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "DeleteVolume" {
			return csidriver.Fail(codes.FailedPrecondition, "it has snapshots")
		}
		return nil
	}
	env := w.running()
	w.Unfinished(env, deleteOperation, "FailedPrecondition", 1)
	if age := w.Metrics(env)["holdfast_operation_oldest_seconds d.example delete FailedPrecondition"]; age < 3600 || age > 3700 {
		t.Errorf("the deletion is %v s old, want an hour", age)
	}
}
