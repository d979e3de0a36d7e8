package host

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// lease is the value of leaseAnnotation: what a hold ends with.
type lease struct {
	// BootID is of the boot that the hold is for.
	BootID string `json:"bootID"`
	// PID and Start are the process that asked, and when it began in clock ticks
	// of that boot; no PID: the hold ends with the boot only.
	PID   int32  `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
}

// addLease writes down what a hold ends with. While this host runs, its
// connection tells of the end of the process that asked; the next host finds it
// by this.
func (h *Host) addLease(pod *corev1.Pod, request api.HoldRequest) error {
	if !request.Lease && !request.UntilReboot {
		return nil
	}
	made := lease{BootID: h.bootID}
	if request.Lease {
		var err error
		if made.Start, err = startOfProcess(request.PID); err != nil {
			return err
		}
		made.PID = request.PID
	}
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	pod.Annotations[leaseAnnotation] = string(text)
	return nil
}

// followLeases ends the holds of an earlier host whose processes are gone, and
// the others when theirs end. It returns with the context.
func (h *Host) followLeases(ctx context.Context) error {
	var held []*corev1.Pod
	err := h.store.View(func(tx *store.Tx) error {
		all, err := tx.Pods().All()
		for _, pod := range all {
			if pod.Annotations[leaseAnnotation] != "" && pod.DeletionTimestamp == nil {
				held = append(held, pod)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for _, pod := range held {
		group.Go(func() { h.followLease(ctx, pod) })
	}
	group.Wait()
	return nil
}

func (h *Host) followLease(ctx context.Context, pod *corev1.Pod) {
	var known lease
	err := json.Unmarshal([]byte(pod.Annotations[leaseAnnotation]), &known)
	switch {
	case err != nil:
		h.options.Logger.Error("what a hold ends with cannot be read; it stays", "hold", store.KeyOf(pod), "error", err)
		return
	case known.BootID == h.bootID && known.PID == 0:
		return // until the next boot
	case known.BootID == h.bootID:
		if err := awaitProcess(ctx, known.PID, known.Start); err != nil {
			if ctx.Err() == nil {
				h.options.Logger.Error("the process that has a hold cannot be watched; the hold stays", "hold", store.KeyOf(pod), "pid", known.PID, "error", err)
			}
			return
		}
	}
	h.options.Logger.Info("a hold ends: its process is gone", "hold", store.KeyOf(pod), "pid", known.PID)
	err = h.endHold(ctx, api.ReleaseRequest{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)})
	if err != nil && !errors.Is(err, api.ErrNotFound) && !errors.Is(err, api.ErrConflict) {
		h.options.Logger.Error("a hold whose process is gone cannot be ended", "hold", store.KeyOf(pod), "error", err)
	}
}
