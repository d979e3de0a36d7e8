package claim

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func TestPublishContext_cannotBeForged(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: podUID}}
	got := PublishContext(pod, map[string]string{
		"size": "1Mi", "csi.storage.k8s.io/pod.name": "forged", "csi.storage.k8s.io/serviceAccount.tokens": "forged",
	}, true)
	want := map[string]string{
		"size": "1Mi", "csi.storage.k8s.io/pod.name": "p", "csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.uid": string(podUID),
		"csi.storage.k8s.io/serviceAccount.name": "default", "csi.storage.k8s.io/ephemeral": "true",
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
}

func TestAppliesFSGroup(t *testing.T) {
	once, many := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	cases := []struct {
		name   string
		policy storagev1.FSGroupPolicy
		fsType string
		modes  []corev1.PersistentVolumeAccessMode
		inline bool
		want   bool
	}{
		{"none", storagev1.NoneFSGroupPolicy, "ext4", once, false, false},
		{"file, any other field", storagev1.FileFSGroupPolicy, "", many, false, true},
		{"default with a filesystem, once", storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "ext4", once, false, true},
		{"default with a filesystem, many", storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "ext4", many, false, false},
		{"default without a filesystem", storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "", once, false, false},
		{"default, inline", storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "ext4", nil, true, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := AppliesFSGroup(c.policy, c.fsType, c.modes, c.inline); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestDriverObject_defaults(t *testing.T) {
	no := false
	both := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		AttachRequired: &no, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
	}}
	switch {
	case !NeedsAttach(nil) || NeedsAttach(both):
		t.Error("attachRequired is true unless the object says otherwise")
	case !HasLifecycle(nil, storagev1.VolumeLifecyclePersistent) || HasLifecycle(nil, storagev1.VolumeLifecycleEphemeral):
		t.Error("without an object, volumes are persistent only")
	case HasLifecycle(both, storagev1.VolumeLifecyclePersistent) || !HasLifecycle(both, storagev1.VolumeLifecycleEphemeral):
		t.Error("the object's list counts")
	case FSGroupPolicy(nil) != storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy:
		t.Error("wrong default policy")
	}
}

func TestClassify_isTheSidecarsTable(t *testing.T) {
	cases := []struct {
		err                                   error
		node, create, attach, expand, capture Outcome
	}{
		{context.Canceled, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain},
		{context.DeadlineExceeded, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain},
		{backend.ErrUnavailable, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain},
		{backend.ErrBusy, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain},
		{backend.ErrNoSpace, OutcomeUncertain, OutcomeFinal, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain},
		{backend.ErrInvalid, OutcomeFinal, OutcomeInfeasible, OutcomeFinal, OutcomeInfeasible, OutcomeFinal},
		{backend.ErrOutOfRange, OutcomeFinal, OutcomeFinal, OutcomeFinal, OutcomeInfeasible, OutcomeFinal},
		{backend.ErrNotFound, OutcomeFinal, OutcomeFinal, OutcomeFinal, OutcomeInfeasible, OutcomeFinal},
		{backend.ErrPrecondition, OutcomeFinal, OutcomeFinal, OutcomeFinal, OutcomeInUse, OutcomeFinal},
		{backend.ErrExists, OutcomeFinal, OutcomeFinal, OutcomeFinal, OutcomeFinal, OutcomeFinal},
		{ErrDriverFailed, OutcomeFinal, OutcomeFinal, OutcomeFinal, OutcomeFinal, OutcomeFinal},
		{errors.New("no answer of a driver"), OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain, OutcomeUncertain},
	}
	for _, c := range cases {
		wrapped := fmt.Errorf("volume v: %w", c.err)
		for call, want := range map[Call]Outcome{CallNode: c.node, CallCreate: c.create, CallAttach: c.attach, CallExpand: c.expand, CallSnapshot: c.capture} {
			if got := Classify(call, wrapped); got != want {
				t.Errorf("call %d, %v: %s, want %s", call, c.err, got, want)
			}
		}
	}
}
