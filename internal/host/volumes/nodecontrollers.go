package volumes

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// NodeControllers process volumes apart from the controller of pods: they unmount the
// volumes of pods that do not exist any more, grow mounted filesystems, and publish
// volumes again whose drivers ask for it.
func (m *Manager) NodeControllers() []reconcile.Controller {
	return []reconcile.Controller{m.leftoverController(), m.growthController(), m.republishController()}
}

// The controllers of the node's half.
const (
	leftovers      = "volumes of pods that are gone"
	growths        = "filesystems that grow"
	republications = "volumes that are published again"
)

// Keys of the leftover controller: a pod by its UID, or a use that no pod has.
const (
	leftoverPod = "pod/"
	leftoverUse = "volume/"
)

func (m *Manager) leftoverController() reconcile.Controller {
	return reconcile.Controller{
		Name:      leftovers,
		All:       leftoverKeys,
		Partition: alone,
		Keys: func(change store.Change) []string {
			if change.Kind.Kind != "Pod" || !change.Deleted {
				return nil
			}
			object, err := change.Object()
			if err != nil {
				return nil
			}
			return []string{leftoverPod + string(object.GetUID())}
		},
		Do: func(ctx context.Context, key string) (time.Duration, error) {
			if name, ok := strings.CutPrefix(key, leftoverUse); ok {
				return 0, m.as(ctx).undoUnused(ctx, name)
			}
			return 0, m.as(ctx).undoGone(ctx, types.UID(strings.TrimPrefix(key, leftoverPod)))
		},
	}
}

// leftoverKeys lists the uses of pods that do not exist.
func leftoverKeys(tx *store.Tx) ([]string, error) {
	alive, err := podsByUID(tx)
	if err != nil {
		return nil, err
	}
	uses, err := tx.Uses().All()
	var keys []string
	for _, use := range uses {
		if len(use.Targets) == 0 && alive[use.LastPod] == nil {
			keys = append(keys, leftoverUse+use.Name)
		}
		for _, target := range use.Targets {
			if alive[target.PodUID] == nil {
				keys = append(keys, leftoverPod+string(target.PodUID))
			}
		}
	}
	return keys, err
}

func podsByUID(tx *store.Tx) (map[types.UID]*corev1.Pod, error) {
	pods, err := tx.Pods().All()
	alive := map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		alive[pod.UID] = pod
	}
	return alive, err
}

// undoGone unmounts the volumes of a pod that does not exist any more. As long as the pod
// controller ends the pod's processes, that controller does it.
func (m *Manager) undoGone(ctx context.Context, uid types.UID) error {
	var alive map[types.UID]*corev1.Pod
	err := m.view(func(tx *store.Tx) (err error) {
		alive, err = podsByUID(tx)
		return err
	})
	if err != nil || alive[uid] != nil {
		return err
	}
	if _, err := os.Lstat(m.options.Paths.PodRecord(uid)); err == nil {
		return nil
	}
	return m.unmountFor(ctx, uid)
}

// undoUnused continues unpublishing, unstaging or detaching that a crash interrupted.
// If a pod uses the volume by now, there is nothing to undo.
func (m *Manager) undoUnused(ctx context.Context, name string) error {
	return m.unmount(ctx, name, func(store.Target) bool { return false })
}

func (m *Manager) growthController() reconcile.Controller {
	return reconcile.Controller{
		Name:      growths,
		Partition: alone,
		All: func(tx *store.Tx) (keys []string, err error) {
			claims, err := tx.Claims().All()
			for _, pvc := range claims {
				if claim.NodeResizeDue(pvc) {
					keys = append(keys, store.KeyOf(pvc))
				}
			}
			return keys, err
		},
		Keys: func(change store.Change) []string {
			if change.Kind.Kind != "PersistentVolumeClaim" || change.Deleted {
				return nil
			}
			object, err := change.Object()
			if pvc, ok := object.(*corev1.PersistentVolumeClaim); err != nil || !ok || !claim.NodeResizeDue(pvc) {
				return nil
			}
			return []string{change.Key}
		},
		Do: func(ctx context.Context, key string) (time.Duration, error) {
			err := m.as(ctx).growNode(ctx, key, "")
			switch {
			case errors.Is(err, ErrNoClaim):
				return 0, nil
			case errors.Is(err, ErrWaiting): // a secret, whose change is not a key here
				return growthPause, nil
			}
			return 0, err
		},
	}
}

// growthPause is the delay until a growth that waits for a secret is retried.
const growthPause = time.Minute
