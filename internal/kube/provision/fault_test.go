package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// editIntents changes the ConfigMaps with intents as an administrator does.
func (w *world) editIntents(change func(map[string]string)) {
	w.t.Helper()
	client := w.Core.CoreV1().ConfigMaps(apiserver.Intents)
	w.Eventually(func() error {
		list, err := client.List(w.Context(), metav1.ListOptions{})
		for i := range list.Items {
			change(list.Items[i].Data)
			_, failed := client.Update(w.Context(), &list.Items[i], metav1.UpdateOptions{})
			err = errors.Join(err, failed)
		}
		return err
	})
}

// TestSuspect_takenOutByHand: a person has looked, and the claim still waits.
func TestSuspect_takenOutByHand(t *testing.T) {
	w := newWorld(t, append(bound("src"), newClass())...)
	w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
	w.crash("create/called", func() { w.Add(newClaim("a", cloneOf("src"))) })
	w.answer(csidriver.Fail(codes.NotFound, "no such source"))
	controller, _ := w.run(func(_ *cluster.Env, o *Options) { o.SlowRetry = 100 * time.Millisecond })
	w.event("Warning ProvisioningCleanupFailed ns/a", "may have been made")
	w.answer(csidriver.Fail(codes.NotFound, "no such source"), csidriver.Fail(codes.NotFound, "no such source"))
	w.editIntents(func(intents map[string]string) { clear(intents) })
	w.saved("pvc-uid-a")
	w.Eventually(func() error {
		if n := controller.quarantined(); n != 0 {
			return fmt.Errorf("%d in quarantine", n)
		}
		return nil
	})
}

// TestProvision_againWhenTheVolumeWentBeforeItWasBound: a user deleted the
// PersistentVolume before the controller-manager saw it.
func TestProvision_againWhenTheVolumeWentBeforeItWasBound(t *testing.T) {
	w := newWorld(t, newClass(retain), newClaim("a"))
	w.run()
	first := w.saved("pvc-uid-a")
	w.Delete(first)
	w.Eventually(func() error {
		if again := w.pv("pvc-uid-a"); again == nil || again.UID == first.UID {
			return errors.New("the claim is left without a volume")
		}
		return nil
	})
}

// TestProvision_againWhenTheVolumeWentBeforeItsAnswer: the watch was faster with both than the
// API server with the answer to the creation, or it was interrupted and showed neither.
func TestProvision_againWhenTheVolumeWentBeforeItsAnswer(t *testing.T) {
	for name, interrupted := range map[string]bool{"and the watch showed it": false, "and the watch did not show it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass(retain))
			var down atomic.Bool
			w.React("watch", "persistentvolumes", func(apiserver.Request) error {
				if down.Load() {
					return apierrors.NewServiceUnavailable("down")
				}
				return nil
			})
			controller, _ := w.run(func(_ *cluster.Env, o *Options) { o.CacheLag = 100 * time.Millisecond })
			w.React("create", "persistentvolumes", func(apiserver.Request) error {
				if interrupted && !down.Swap(true) {
					w.BreakWatches()
				}
				return nil
			})
			var once sync.Once
			deleted := make(chan types.UID, 1)
			w.LoseAnswers("create", "persistentvolumes", func(apiserver.Request) error {
				once.Do(func() {
					pv := w.pv("pvc-uid-a")
					w.Delete(pv)
					shown := func() bool {
						_, cached := controller.volumes.Get(pv.Name)
						return !cached && controller.volumes.ReachedVersion(pv.ResourceVersion)
					}
					for began := time.Now(); !interrupted && !shown() && time.Since(began) < 10*time.Second; {
						time.Sleep(time.Millisecond)
					}
					down.Store(false)
					deleted <- pv.UID
				})
				return nil
			})
			w.Add(newClaim("a"))
			first := <-deleted
			w.Eventually(func() error {
				if again := w.pv("pvc-uid-a"); again == nil || again.UID == first {
					return errors.New("the claim is left without a volume")
				}
				return nil
			})
		})
	}
}

// TestReplay_leavesADamagedRecordAlone: what cannot be read may be a volume.
func TestReplay_leavesADamagedRecordAlone(t *testing.T) {
	for name, text := range map[string]string{
		"empty": `{}`, "without a claim": `{"request":{},"volume":{"metadata":{"name":"pvc-x"},"spec":{"csi":{"driver":"d.example"}}}}`,
		"without a source": `{"request":{},"volume":{"metadata":{"name":"pvc-x"},"spec":{"claimRef":{"uid":"uid-x"}}}}`,
		"no JSON":          `{`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			w.crash("create/intent", func() { w.Add(newClaim("a")) })
			if json.Valid([]byte(text)) {
				text = fmt.Sprintf(`{"id":"1-x","intent":%s}`, text)
			}
			w.editIntents(func(intents map[string]string) { intents["uid-x"] = text })
			w.run()
			w.saved("pvc-uid-a")
			w.Eventually(func() error {
				if n := w.stored(); n != 1 {
					return fmt.Errorf("%d intents, not the damaged one alone", n)
				}
				return nil
			})
		})
	}
}

// TestProvision_invalidArgumentIsForgottenWithTheWish: a user who changes what
// the driver refused does not wait for the end of the pause.
func TestProvision_invalidArgumentIsForgottenWithTheWish(t *testing.T) {
	w := newWorld(t, newClass())
	w.answer(csidriver.Fail(codes.InvalidArgument, "no such tier"))
	w.run()
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningFailed ns/a", "no such tier")
	w.Eventually(func() error {
		if n := w.stored(); n != 0 {
			return fmt.Errorf("%d intents", n)
		}
		return nil
	})
	w.Put(newClaim("a", onNode("n"))) // as good as any other change of the request
	w.saved("pvc-uid-a")
}

// TestRun_leavesTheRecordsToTheNextHolderOfTheLease: what is written after the
// lease was lost could undo what the next process does.
func TestRun_leavesTheRecordsToTheNextHolderOfTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		cause error
		left  int
	}{"lost": {errors.New("the lease was lost"), 1}, "ended": {nil, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass(), newClaim("a"))
			env := w.NewEnv()
			controller := New(env, Options{ForgetAfter: time.Hour})
			ctx, end := context.WithCancelCause(w.Context())
			env.Set.Start(ctx)
			if err := env.Set.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { defer close(ended); _ = controller.Run(ctx) }()
			w.event("Normal ProvisioningSucceeded ns/a")
			end(test.cause)
			<-ended
			if n := w.stored(); n != test.left {
				t.Errorf("%d intents are left, want %d", n, test.left)
			}
		})
	}
}
