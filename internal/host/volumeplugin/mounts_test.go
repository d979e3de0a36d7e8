package volumeplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// slowHost makes and ends holds as a host does: in the store, and each step after
// a pause.
type slowHost struct {
	Host
	store *store.Store
	pause func()

	mu   sync.Mutex
	made int
	// busy keeps the holds that are released.
	busy bool
}

// Hold returns the existing hold of a name, or a new one.
func (h *slowHost) Hold(ctx context.Context, request api.HoldRequest) (api.HoldAnswer, error) {
	h.pause()
	key := store.Key(request.Namespace, request.Name)
	for {
		uid, going, err := h.makeHold(key, request)
		if err != nil {
			return api.HoldAnswer{}, err
		}
		if !going {
			h.pause()
			return api.HoldAnswer{Volumes: map[string]api.HoldMount{"volume": {Path: "/pods/" + string(uid)}}}, nil
		}
		select {
		case <-ctx.Done():
			return api.HoldAnswer{}, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (h *slowHost) makeHold(key string, request api.HoldRequest) (uid types.UID, going bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	err = h.store.Update(func(tx *store.Tx) error {
		there, err := tx.Pods().Get(key)
		if err != nil {
			return err
		}
		if there != nil {
			uid, going = there.UID, there.DeletionTimestamp != nil
			return nil
		}
		h.made++
		uid = types.UID(fmt.Sprint("uid-", h.made))
		return tx.Pods().Put(key, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name, UID: uid},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: request.Volumes[0].Claim},
			}}}},
		})
	})
	return uid, going, err
}

func (h *slowHost) Release(_ context.Context, request api.ReleaseRequest) error {
	h.pause()
	h.mu.Lock()
	defer h.mu.Unlock()
	key := store.Key(request.Namespace, request.Name)
	var there *corev1.Pod
	err := h.store.Update(func(tx *store.Tx) (err error) {
		if there, err = tx.Pods().Get(key); err != nil || there == nil {
			return err
		}
		if !h.busy {
			return tx.Pods().Delete(key)
		}
		there.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		return tx.Pods().Put(key, there)
	})
	switch {
	case err != nil:
		return err
	case there == nil:
		return api.ErrNotFound
	case h.busy:
		return api.ErrReleasing
	}
	return nil
}

// finish unmounts the released volumes.
func (h *slowHost) finish(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = false
	err := h.store.Update(func(tx *store.Tx) error {
		all, err := tx.Pods().All()
		for _, pod := range all {
			if pod.DeletionTimestamp != nil {
				err = errors.Join(err, tx.Pods().Delete(store.KeyOf(pod)))
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func (h *slowHost) occupy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = true
}

// inUse are the holds that are not released.
func (h *slowHost) inUse(t *testing.T) (uids []types.UID) {
	t.Helper()
	err := h.store.View(func(tx *store.Tx) error {
		all, err := tx.Pods().All()
		for _, pod := range all {
			if pod.DeletionTimestamp == nil {
				uids = append(uids, pod.UID)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return uids
}

// withPlugin runs a test in a bubble with a plugin over a host.
func withPlugin(t *testing.T, test func(t *testing.T, host *slowHost, call func(path, id string) answer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opened, err := store.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		}()
		host := &slowHost{store: opened, pause: func() {}}
		plugin := &Plugin{Host: host, Store: opened, Logger: slog.New(slog.DiscardHandler)}
		handler := plugin.Handler()
		test(t, host, func(path, id string) (answered answer) {
			recorder := httptest.NewRecorder()
			body := fmt.Sprintf(`{"Name":"web","ID":%q}`, id)
			handler.ServeHTTP(recorder, httptest.NewRequest("POST", "/VolumeDriver."+path, strings.NewReader(body)))
			if err := json.Unmarshal(recorder.Body.Bytes(), &answered); err != nil {
				t.Errorf("%s %s: %v in %s", path, id, err, recorder.Body)
			}
			return answered
		})
	})
}

// Two Mounts of one ID at once are one use of the volume, also when the hold of
// an earlier one is released between them.
func TestMount_twiceAtOnceIsOneHold(t *testing.T) {
	withPlugin(t, func(t *testing.T, host *slowHost, call func(path, id string) answer) {
		call("Mount", "one")
		host.occupy()
		call("Unmount", "one")
		arrive := make(chan struct{})
		host.pause = func() { <-arrive }
		answers := make(chan answer, 2)
		go func() { answers <- call("Mount", "one") }()
		synctest.Wait() // the first Mount has chosen a name next to the busy hold
		host.finish(t)
		go func() { answers <- call("Mount", "one") }()
		synctest.Wait()
		close(arrive)
		first, second := <-answers, <-answers
		if first.Err != "" || first.Mountpoint != second.Mountpoint {
			t.Errorf("the Mounts are answered with %+v and %+v", first, second)
		}
		if held := host.inUse(t); len(held) != 1 {
			t.Errorf("there are the holds %v; want one", held)
		}
		call("Unmount", "one")
		if held := host.inUse(t); len(held) != 0 {
			t.Errorf("after Unmount there are the holds %v", held)
		}
	})
}

// Any number of engines mount and unmount some IDs at random, each request once
// or several times at once, while volumes are busy and come free. An ID that is
// mounted has one hold, and one that is not has none.
func TestModel_mountsAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			withPlugin(t, func(t *testing.T, host *slowHost, call func(path, id string) answer) {
				random := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // repeatable
				var mu sync.Mutex
				pick := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return random.IntN(n)
				}
				host.pause = func() { time.Sleep(time.Duration(pick(1500)) * time.Millisecond) }
				ids := []string{"one", "two", "three"}
				for range 40 {
					want := 0
					var group sync.WaitGroup
					for _, id := range ids {
						path := []string{"Mount", "Unmount"}[pick(2)]
						if path == "Mount" {
							want++
						}
						for range 1 + pick(3) {
							group.Go(func() {
								host.pause()
								if answered := call(path, id); answered.Err != "" {
									t.Errorf("%s %s: %s", path, id, answered.Err)
								}
							})
						}
					}
					if pick(2) == 0 {
						host.occupy()
					}
					if pick(2) == 0 {
						group.Go(func() { host.pause(); host.finish(t) })
					}
					group.Wait()
					if held := host.inUse(t); len(held) != want {
						t.Fatalf("%d IDs are mounted, and there are the holds %v", want, held)
					}
				}
			})
		})
	}
}
