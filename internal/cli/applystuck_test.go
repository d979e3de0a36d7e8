package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

func growingClaim(state corev1.ClaimResourceStatus) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	size := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	pvc := pendingClaim("data")
	pvc.Spec.VolumeName, pvc.Spec.Resources.Requests = "pv-1", size("2Gi")
	pvc.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size("1Gi"), AllocatedResources: size("2Gi"),
		AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: state}}
	pv := &corev1.PersistentVolume{ObjectMeta: meta("pv-1"), Spec: corev1.PersistentVolumeSpec{
		Capacity: size("2Gi"), ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data", UID: pvc.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example", VolumeHandle: "v"}},
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	pv.Namespace = ""
	return pvc, pv
}

func newWaiter(t *testing.T, h *testHost) *waiter {
	t.Helper()
	client := api.DialRoot(h.root)
	t.Cleanup(client.Close)
	return &waiter{client: client, ready: make(chan struct{}),
		pending: map[api.Applied]string{{Kind: "PersistentVolumeClaim", Key: "default/data"}: "it must grow"}}
}

func TestWait_endsWhenAPersonHasToAct(t *testing.T) {
	h := startTestHost(t)
	pvc, pv := growingClaim(corev1.PersistentVolumeClaimNodeResizeInfeasible)
	h.put(t, pvc, pv)
	h.sound.Store(true)
	err := newWaiter(t, h).judge(t.Context(), time.Millisecond, 10*time.Millisecond)
	want := "waiting does not help, although the host continues: pvc/data in namespace default: the driver reports that the claim data cannot grow from 1Gi to 2Gi at all"
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ". Ask for a smaller size") {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func TestWait_continuesWhileTheHostWorksOrWaits(t *testing.T) {
	for name, c := range map[string]struct {
		state corev1.ClaimResourceStatus
		works bool
	}{
		"the host works":         {corev1.PersistentVolumeClaimNodeResizeInfeasible, true},
		"a pod has to use it":    {corev1.PersistentVolumeClaimNodeResizePending, false},
		"the driver has to grow": {corev1.PersistentVolumeClaimControllerResizeInProgress, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := startTestHost(t)
			h.works.Store(c.works)
			h.sound.Store(true)
			pvc, pv := growingClaim(c.state)
			h.put(t, pvc, pv)
			w := newWaiter(t, h)
			if answer := w.stuck(t.Context(), w.waiting()[0]); answer != "" {
				t.Errorf("ends with %q", answer)
			}
			close(w.ready)
			if err := w.judge(t.Context(), time.Hour, 0); err != nil {
				t.Error(err)
			}
		})
	}
}
