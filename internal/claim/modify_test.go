package claim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const (
	modifyPending    = corev1.PersistentVolumeClaimModifyVolumePending
	modifyInProgress = corev1.PersistentVolumeClaimModifyVolumeInProgress
	modifyInfeasible = corev1.PersistentVolumeClaimModifyVolumeInfeasible
)

func TestModify_step(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Modify
		want ModifyStep
	}{
		{"no class at all", Modify{}, ModifyNothing},
		{"what it has", Modify{Desired: "a", Current: "a"}, ModifyNothing},
		{"its first class", Modify{Desired: "a"}, ModifyStart},
		{"another class", Modify{Desired: "b", Current: "a"}, ModifyStart},
		{"refused not long ago", Modify{Desired: "b", Current: "a", Target: "b", Status: modifyInfeasible, Slow: true}, ModifyWait},
		{"refused long ago", Modify{Desired: "b", Current: "a", Target: "b", Status: modifyInfeasible}, ModifyStart},
		{"another after a refusal", Modify{Desired: "c", Current: "a", Target: "b", Status: modifyInfeasible, Slow: true}, ModifyStart},
		{"back after a refusal", Modify{Desired: "a", Current: "a", Target: "b", Status: modifyInfeasible, Modifying: true}, ModifyStart},
		{"withdrawn after a refusal", Modify{Target: "b", Status: modifyInfeasible, Modifying: true}, ModifyCancel},
		{"withdrawn and recorded", Modify{Target: "b", Status: modifyInfeasible}, ModifyNothing},
		{"withdrawn while pending", Modify{Target: "b", Status: modifyPending, Modifying: true}, ModifyCancel},
		{"withdrawn before anything", Modify{Modifying: true}, ModifyCancel},
		{"pending", Modify{Desired: "b", Status: modifyPending}, ModifyStart},
		{"withdrawn in progress", Modify{Target: "b", Status: modifyInProgress, Final: true}, ModifyContinue},
		{"withdrawn in progress, uncertain", Modify{Target: "b", Status: modifyInProgress}, ModifyContinue},
		{"in progress after a restart", Modify{Desired: "b", Target: "b", Status: modifyInProgress}, ModifyContinue},
		{"another while uncertain", Modify{Desired: "c", Target: "b", Status: modifyInProgress}, ModifyContinue},
		{"another after a final error", Modify{Desired: "c", Target: "b", Status: modifyInProgress, Final: true}, ModifyStart},
		{"the same after a final error", Modify{Desired: "b", Target: "b", Status: modifyInProgress, Final: true}, ModifyStart},
		{"in progress towards nothing", Modify{Desired: "b", Status: modifyInProgress}, ModifyStart},
	} {
		if got := c.m.Step(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func modifyingClaim(status corev1.PersistentVolumeClaimModifyVolumeStatus, target string) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{}
	if status != "" {
		pvc.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: status, TargetVolumeAttributesClassName: target}
	}
	return pvc
}

func TestModifyStatus_writesWhatTheAnswerMeans(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name    string
		outcome Outcome
		status  corev1.PersistentVolumeClaimModifyVolumeStatus
	}{
		{"refused", OutcomeInfeasible, modifyInfeasible},
		{"failed", OutcomeFinal, modifyInProgress},
		{"uncertain", OutcomeUncertain, modifyInProgress},
	} {
		pvc := modifyingClaim("", "")
		BeginModify(pvc, "b", now)
		FailModify(pvc, c.outcome, "Internal", "why", now)
		want := &corev1.ModifyVolumeStatus{Status: c.status, TargetVolumeAttributesClassName: "b"}
		if diff := cmp.Diff(want, pvc.Status.ModifyVolumeStatus); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		failure := Condition(pvc, corev1.PersistentVolumeClaimVolumeModifyVolumeError)
		if failure == nil || failure.Reason != "Internal" || failure.Message != "why" {
			t.Errorf("%s: condition %+v", c.name, failure)
		}
		if Condition(pvc, corev1.PersistentVolumeClaimVolumeModifyingVolume) == nil {
			t.Errorf("%s: nothing says that the request is still open", c.name)
		}
		BeginModify(pvc, "c", now)
		if Condition(pvc, corev1.PersistentVolumeClaimVolumeModifyVolumeError) != nil {
			t.Errorf("%s: the error of one class is said of another", c.name)
		}
		FinishModify(pvc, "c")
		if pvc.Status.ModifyVolumeStatus != nil || len(pvc.Status.Conditions) > 0 || *pvc.Status.CurrentVolumeAttributesClassName != "c" {
			t.Errorf("%s: in the end %+v", c.name, pvc.Status)
		}
	}
}

func TestPendModify_keepsTheRecordOfTheLastAttempt(t *testing.T) {
	pvc := modifyingClaim(modifyInfeasible, "b")
	PendModify(pvc)
	if s := pvc.Status.ModifyVolumeStatus; s.Status != modifyPending || s.TargetVolumeAttributesClassName != "b" {
		t.Errorf("%+v", s)
	}
	pvc = modifyingClaim("", "")
	PendModify(pvc)
	if s := pvc.Status.ModifyVolumeStatus; s.Status != modifyPending || len(pvc.Status.Conditions) > 0 {
		t.Errorf("%+v", pvc.Status)
	}
}

func TestCancelModify_leavesTheRecord(t *testing.T) {
	pvc := modifyingClaim("", "")
	BeginModify(pvc, "b", time.Now())
	FailModify(pvc, OutcomeInfeasible, "InvalidArgument", "no", time.Now())
	CancelModify(pvc)
	if ModifyOf(pvc).Modifying || pvc.Status.ModifyVolumeStatus == nil {
		t.Errorf("%+v", pvc.Status)
	}
}

func TestModifySecret(t *testing.T) {
	expand := &corev1.SecretReference{Name: "grow", Namespace: "system"}
	volume := &corev1.PersistentVolume{}
	if ModifySecret(volume) != nil {
		t.Error("a secret from nowhere")
	}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{ControllerExpandSecretRef: expand}
	if got := ModifySecret(volume); got != expand {
		t.Errorf("without annotations: %v", got)
	}
	volume.Annotations = map[string]string{ModifySecretNameAnnotation: "change"}
	if got := ModifySecret(volume); got != expand {
		t.Errorf("with half an annotation: %v", got)
	}
	volume.Annotations[ModifySecretNamespaceAnnotation] = "other"
	if got := ModifySecret(volume); got.Name != "change" || got.Namespace != "other" {
		t.Errorf("with both: %v", got)
	}
}

func TestMutableParameters_addsNamesWhenAsked(t *testing.T) {
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Name, pvc.Namespace = "data", "shop"
	class := map[string]string{"iops": "9"}
	if got := MutableParameters(class, pvc, "pv-1", false); len(got) != 1 {
		t.Errorf("plain: %v", got)
	}
	want := map[string]string{
		"iops": "9", "csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "pv-1",
	}
	if diff := cmp.Diff(want, MutableParameters(class, pvc, "pv-1", true)); diff != "" {
		t.Error(diff)
	}
	if len(class) != 1 {
		t.Errorf("the class was changed: %v", class)
	}
}
