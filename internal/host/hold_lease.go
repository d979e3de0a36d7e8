package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// lease is the value of leaseAnnotation: the process or unit with which a hold ends.
type lease struct {
	// BootID is of the boot that the hold is for.
	BootID string `json:"bootID"`
	// PID and Start are the process that asked, and when it began in clock ticks
	// of that boot; no PID: the hold ends with the boot only.
	PID   int32  `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// Unanswered is set until the volumes of a hold without a PID are mounted. The
	// caller does not use the volumes before it gets an answer, and a host that is
	// killed sends none.
	Unanswered bool `json:"unanswered,omitempty"`
}

// addLease records the process or boot that a hold ends with. While this host runs,
// the end of the connection is the end of the process; the next host uses the record.
func (h *Host) addLease(pod *corev1.Pod, request api.HoldRequest) error {
	if !request.Lease && !request.UntilReboot {
		return nil
	}
	made := lease{BootID: h.bootID, Unanswered: !request.Lease}
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

// sameLease reports whether two holds end with the same, answered or not.
func sameLease(a, b *corev1.Pod) bool {
	texts := [2]string{a.Annotations[leaseAnnotation], b.Annotations[leaseAnnotation]}
	if texts[0] == texts[1] {
		return true
	}
	var leases [2]lease
	for i := range leases {
		if err := json.Unmarshal([]byte(texts[i]), &leases[i]); err != nil {
			return false
		}
		leases[i].Unanswered = false
	}
	return leases[0] == leases[1]
}

// unanswered reads the lease of a hold whose caller has no answer yet.
func unanswered(pod *corev1.Pod) (known lease, ok bool) {
	text := pod.Annotations[leaseAnnotation]
	ok = text != "" && json.Unmarshal([]byte(text), &known) == nil && known.Unanswered
	return known, ok
}

// recordAnswer records that the caller gets its answer, if its hold is one that
// stays when the host is killed from now on.
func (h *Host) recordAnswer(key string, uid types.UID) error {
	pod, err := h.podOf(key)
	if err != nil || pod == nil {
		return err
	}
	if _, ok := unanswered(pod); !ok {
		return nil
	}
	err = h.store.Update(func(tx *store.Tx) error {
		pod, err := tx.Pods().Get(key)
		if err != nil || pod == nil || pod.UID != uid {
			return err
		}
		known, ok := unanswered(pod)
		if !ok {
			return nil
		}
		known.Unanswered = false
		text, err := json.Marshal(known)
		if err != nil {
			return err
		}
		pod = pod.DeepCopy()
		pod.Annotations[leaseAnnotation] = string(text)
		return tx.Pods().Put(key, pod)
	})
	if err != nil {
		return fmt.Errorf("hold %s: record that its volumes are in place: %w", key, err)
	}
	return nil
}

// endUnanswered ends the holds that an earlier host was killed before it
// answered for: the caller does not use them and never releases them. It runs
// before this host accepts calls. A hold that cannot be ended stays.
func (h *Host) endUnanswered(ctx context.Context) error {
	var unanswered []*corev1.Pod
	err := h.store.View(func(tx *store.Tx) error {
		all, err := tx.Pods().All()
		for _, pod := range all {
			var known lease
			if text := pod.Annotations[leaseAnnotation]; text != "" && pod.DeletionTimestamp == nil &&
				json.Unmarshal([]byte(text), &known) == nil && known.Unanswered {
				unanswered = append(unanswered, pod)
			}
		}
		return err
	})
	for _, pod := range unanswered {
		h.endLeft(ctx, pod, "an earlier host was killed before it answered")
	}
	return err
}

// endDeadHolds ends the holds of an earlier host whose processes are gone. It
// runs before this host accepts calls, so that a name is free for the next.
func (h *Host) endDeadHolds(ctx context.Context) error {
	var dead []*corev1.Pod
	err := h.store.View(func(tx *store.Tx) error {
		all, err := tx.Pods().All()
		for _, pod := range all {
			var known lease
			if text := pod.Annotations[leaseAnnotation]; text == "" || pod.DeletionTimestamp != nil ||
				json.Unmarshal([]byte(text), &known) != nil {
				continue
			}
			if known.BootID != h.bootID || known.PID != 0 && hasEnded(known.PID, known.Start) {
				dead = append(dead, pod)
			}
		}
		return err
	})
	for _, pod := range dead {
		h.endLeft(ctx, pod, "its process is gone")
	}
	return err
}

// endLeft ends a hold that its holder never releases. One that cannot be ended
// stays.
func (h *Host) endLeft(ctx context.Context, pod *corev1.Pod, why string) {
	h.options.Logger.Info("a hold ends", "hold", store.KeyOf(pod), "reason", why)
	err := h.endHold(ctx, api.ReleaseRequest{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)})
	if err != nil && !errors.Is(err, api.ErrNotFound) && !errors.Is(err, api.ErrConflict) {
		h.options.Logger.Error("a hold cannot be ended; end it with 'holdfast release'",
			"hold", store.KeyOf(pod), "error", err)
	}
}

// followLeases ends the holds of an earlier host when their processes end. It
// returns with the context.
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
		h.options.Logger.Error("the lease of a hold cannot be read; the hold stays", "hold", store.KeyOf(pod), "error", err)
		return
	case known.BootID == h.bootID && known.PID == 0:
		return // until the next boot
	case known.BootID == h.bootID:
		if err := awaitProcess(ctx, known.PID, known.Start); err != nil {
			if ctx.Err() == nil {
				h.options.Logger.Error("the process that has a hold cannot be watched; the hold stays", "hold", store.KeyOf(pod),
					"pid", known.PID, "error", err)
			}
			return
		}
	}
	h.endLeft(ctx, pod, "its process is gone")
}
