package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/status"
)

// waiter waits for applied objects.
type waiter struct {
	client *api.Client

	mu sync.Mutex
	// pending has the reasons of the objects that are not ready, by kind and key.
	pending map[api.Applied]string
	// ready is closed when nothing is pending.
	ready chan struct{}
}

var errKindReady = errors.New("everything of this kind is ready")

// await shows the steps until everything is ready.
func (c *applyConfig) await(command *cobra.Command, client *api.Client, result api.ApplyResult, after uint64) error {
	w := &waiter{client: client, pending: map[api.Applied]string{}, ready: make(chan struct{})}
	for _, applied := range result.Applied {
		applied.Action = ""
		if slices.Contains([]string{"PersistentVolumeClaim", "Pod", "VolumeSnapshot"}, applied.Kind) {
			w.pending[applied] = "the host has not reported it yet"
		}
	}
	if len(w.pending) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(command.Context(), c.timeout)
	defer cancel()
	progress := newDisplay(command.ErrOrStderr())
	defer progress.close()
	about := map[api.Applied]bool{}
	for applied := range w.pending {
		about[applied] = true
	}
	err := w.run(ctx, progress, func(ctx context.Context) error {
		return client.WatchJournal(ctx, after, func(entry journal.Entry) error {
			if event, ok := stepOf(entry, about); ok {
				progress.observe(event)
			}
			return nil
		})
	})
	if errors.Is(err, context.DeadlineExceeded) && command.Context().Err() == nil {
		return fmt.Errorf("not ready after %s: %s", c.timeout, w.describe())
	}
	if errors.Is(err, context.Canceled) && command.Context().Err() != nil {
		return fmt.Errorf("interrupted; the host continues. Not ready: %s%s", w.describe(), howToRemove(result.Applied))
	}
	return err
}

// stepOf is a step of one of the objects, for the display.
func stepOf(entry journal.Entry, about map[api.Applied]bool) (volumes.Event, bool) {
	if entry.Step == nil || !slices.ContainsFunc(entry.Step.About, func(ref journal.Ref) bool {
		return about[api.Applied{Kind: ref.Kind, Key: ref.Key}]
	}) {
		return volumes.Event{}, false
	}
	step := entry.Step
	event := volumes.Event{Volume: step.Volume, Step: volumes.Step(step.Step), Took: step.Took,
		Detail: step.Detail, Progress: step.Progress}
	if step.Error != "" {
		event.Err = errors.New(step.Error)
	}
	switch step.Status {
	case journal.Done:
		event.Status = volumes.Done
	case journal.Retrying, journal.Failed:
		event.Status = volumes.Retrying // the host keeps retrying
	}
	return event, true
}

// settleLimit is how long the display waits for the end of a step whose effect was seen.
const settleLimit = time.Second

// run follows each kind, and show concurrently.
func (w *waiter) run(ctx context.Context, shows *display, show func(context.Context) error) error {
	showing, stop := context.WithCancel(ctx)
	defer stop()
	kinds := map[string]bool{}
	for applied := range w.pending {
		kinds[applied.Kind] = true
	}
	group, ctx := errgroup.WithContext(ctx)
	for name := range kinds {
		kind, _ := kindNamed(name)
		group.Go(func() error { return w.follow(ctx, kind) })
	}
	group.Go(func() error { return w.judge(ctx, judgeEvery, stuckAfter) })
	var shown sync.WaitGroup
	shown.Go(func() { _ = show(showing) }) // without the display the result is the same
	err := group.Wait()
	if err == nil {
		shows.settle(settleLimit)
	}
	stop()
	shown.Wait()
	return err
}

func (w *waiter) follow(ctx context.Context, kind store.Kind) error {
	for {
		err := w.client.Watch(ctx, kind, api.ListOptions{},
			func(event api.WatchEvent) error { return w.see(ctx, kind, event) })
		switch {
		case errors.Is(err, errKindReady):
			return nil
		case !errors.Is(err, store.ErrExpired):
			return err
		}
	}
}

func (w *waiter) see(ctx context.Context, kind store.Kind, event api.WatchEvent) error {
	applied := api.Applied{Kind: kind.Kind, Key: store.KeyOf(event.Object)}
	w.mu.Lock()
	_, waits := w.pending[applied]
	w.mu.Unlock()
	if !waits {
		return nil
	}
	if event.Type == watch.Deleted {
		return fmt.Errorf("%s/%s was deleted", strings.ToLower(kind.Kind), event.Object.GetName())
	}
	reason, err := w.reason(ctx, event.Object)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if reason != "" {
		w.pending[applied] = reason
		return nil
	}
	delete(w.pending, applied)
	if len(w.pending) == 0 {
		close(w.ready)
	}
	for other := range w.pending {
		if other.Kind == kind.Kind {
			return nil
		}
	}
	return errKindReady
}

// reason says why an object is not ready, "" for one that is.
func (w *waiter) reason(ctx context.Context, object store.Object) (string, error) {
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		return w.claim(ctx, object)
	case *corev1.Pod:
		switch object.Status.Phase {
		case corev1.PodRunning, corev1.PodSucceeded:
			return "", nil
		case corev1.PodFailed:
			return "", fmt.Errorf("pod/%s failed: %s", object.Name, status.PodStatus(object))
		}
		return "its phase is " + string(object.Status.Phase), nil
	case *snapshotv1.VolumeSnapshot:
		status := object.Status
		switch {
		case status != nil && status.ReadyToUse != nil && *status.ReadyToUse:
			return "", nil
		case status != nil && status.Error != nil:
			return text(status.Error.Message), nil
		}
		return "it is not ready to use", nil
	}
	return "", nil
}

func (w *waiter) claim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (string, error) {
	switch pvc.Status.Phase {
	case corev1.ClaimLost:
		return "", fmt.Errorf("persistentvolumeclaim/%s lost its volume", pvc.Name)
	case corev1.ClaimBound:
		desired, has := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
		if has.Cmp(desired) < 0 && slices.ContainsFunc(pvc.Status.Conditions, isFilesystemPending) {
			return fmt.Sprintf("its volume has grown to %s, and its filesystem grows when a pod uses it", desired.String()), nil
		}
		if has.Cmp(desired) < 0 {
			return fmt.Sprintf("it must grow from %s to %s", has.String(), desired.String()), nil
		}
		return "", nil
	}
	first, err := w.waitsForPod(ctx, pvc)
	if first || err != nil {
		return "", err // with a pod, the pod is waited for
	}
	return "it has no volume yet", nil
}

func isFilesystemPending(c corev1.PersistentVolumeClaimCondition) bool {
	return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue
}

// waitsForPod reports whether a claim gets its volume when a pod uses it.
func (w *waiter) waitsForPod(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (bool, error) {
	if text(pvc.Spec.StorageClassName) == "" || pvc.Spec.VolumeName != "" {
		return false, nil
	}
	kind, _ := kindNamed("StorageClass")
	object, err := w.client.Get(ctx, kind, "", *pvc.Spec.StorageClassName)
	if errors.Is(err, api.ErrNotFound) {
		return false, nil
	}
	class, ok := object.(*storagev1.StorageClass)
	return ok && or(class.VolumeBindingMode, "") == string(storagev1.VolumeBindingWaitForFirstConsumer), err
}

// describe lists the objects that are not ready.
func (w *waiter) describe() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var texts []string
	for applied, reason := range w.pending {
		kind, _ := kindNamed(applied.Kind)
		texts = append(texts, fmt.Sprintf("%s %q (%s)", kind.Kind, applied.Key, reason))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ") + ": see 'holdfast describe'"
}
