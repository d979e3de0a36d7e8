package provision

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestProvision_oneWriteAndAnIntent(t *testing.T) {
	w := newWorld(t, newClass())
	_, stop := w.run(func(_ *cluster.Env, o *Options) {
		o.AttachFinalizer, o.ForgetAfter = "external-attacher/d-example", time.Hour
	})
	w.Add(newClaim("a"))
	pv := w.saved("pvc-uid-a")
	w.event("Normal ProvisioningSucceeded ns/a: Successfully provisioned volume pvc-uid-a")
	writes := map[string]int{}
	for _, write := range w.Writes() {
		writes[write.Verb+" "+write.Resource]++
	}
	if writes["create persistentvolumes"] != 1 || writes["create configmaps"] != 1 || writes["update configmaps"] != 2 || len(writes) != 3 {
		t.Errorf("writes: %v", writes)
	}
	if want := []string{claim.ProvisionerFinalizer, "external-attacher/d-example"}; !slices.Equal(pv.Finalizers, want) {
		t.Errorf("finalizers %v", pv.Finalizers)
	}
	if pv.Spec.CSI.VolumeHandle != "id-pvc-uid-a" || pv.Spec.ClaimRef.UID != "uid-a" || pv.Spec.CSI.VolumeAttributes[claim.IdentityAttribute] == "" {
		t.Errorf("%+v", pv.Spec)
	}
	if w.stored() != 1 {
		t.Errorf("%d intents before the removal", w.stored())
	}
	stop()
	w.complete(1)
}

func TestProvision_leavesAlone(t *testing.T) {
	populated := func(p *corev1.PersistentVolumeClaim) {
		group := "populators.example"
		p.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: "Git", Name: "x"}
	}
	now := metav1.Now()
	cases := []struct {
		name   string
		class  *storagev1.StorageClass
		change func(*corev1.PersistentVolumeClaim)
	}{
		{"another driver's claim", newClass(), func(p *corev1.PersistentVolumeClaim) { p.Annotations[provisionerAnnotation] = "e.example" }},
		{"the GA annotation over the beta one", newClass(), func(p *corev1.PersistentVolumeClaim) {
			p.Annotations = map[string]string{provisionerAnnotation: "e.example", betaProvisionerAnnotation: driverName}
		}},
		{"a bound claim", newClass(), func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeName = "pv" }},
		{"a claim that waits for its first pod", newClass(waitForConsumer), func(*corev1.PersistentVolumeClaim) {}},
		{"a class of another driver", newClass(func(c *storagev1.StorageClass) { c.Provisioner = "e.example" }), func(*corev1.PersistentVolumeClaim) {}},
		{"a populator's claim", newClass(), populated},
		{"a claim that is being deleted", newClass(), func(p *corev1.PersistentVolumeClaim) {
			p.DeletionTimestamp, p.Finalizers = &now, []string{"kubernetes.io/pvc-protection"}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.class, newClaim("a", c.change))
			w.run()
			w.Never(100*time.Millisecond, func() error {
				if len(w.calls()) > 0 {
					return fmt.Errorf("the driver was called: %v", w.calls())
				}
				return nil
			})
		})
	}
	w := newWorld(t, newClass(), newClaim("a", populated))
	w.run()
	w.event("Normal Provisioning ns/a: Assuming an external populator will provision the volume")
}

func TestProvision_waitsForAClass(t *testing.T) {
	w := newWorld(t, newClaim("a"))
	w.run()
	w.event("Warning ProvisioningFailed", `storageclass.storage.k8s.io "fast" not found`)
	w.Add(newClass())
	w.saved("pvc-uid-a")
}

func TestProvision_badInputEndsInAnEvent(t *testing.T) {
	elsewhere, vac := "elsewhere", "gold"
	cases := []struct {
		name   string
		class  *storagev1.StorageClass
		change func(*corev1.PersistentVolumeClaim)
		want   string
	}{
		{"unknown reserved key", newClass(parameters("csi.storage.k8s.io/nonsense", "x")), nil, "parameters[csi.storage.k8s.io/nonsense]: no such key"},
		{"half a secret", newClass(parameters("csi.storage.k8s.io/node-stage-secret-name", "x")), nil, "must both be given"},
		{"a bad token", newClass(parameters("csi.storage.k8s.io/provisioner-secret-name", "${pod.name}", "csi.storage.k8s.io/provisioner-secret-namespace", "ns")), nil, `unknown token "pod.name"`},
		{"a missing secret", newClass(parameters("csi.storage.k8s.io/provisioner-secret-name", "s", "csi.storage.k8s.io/provisioner-secret-namespace", "ns")), nil, "read Secret ns/s"},
		{"two filesystems", newClass(parameters("csi.storage.k8s.io/fstype", "xfs", "FSTYPE", "ext4")), nil, "both name a filesystem"},
		{"a selector", newClass(), func(p *corev1.PersistentVolumeClaim) {
			p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "spec.selector"},
		{"no size", newClass(), func(p *corev1.PersistentVolumeClaim) { p.Spec.Resources.Requests = nil }, "spec.resources.requests.storage is missing"},
		{"an unknown access mode", newClass(), func(p *corev1.PersistentVolumeClaim) {
			p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"Sometimes"}
		}, `access mode "Sometimes"`},
		{"a snapshot, and no capability", newClass(), restoreOf("s"), "does not restore snapshots (CREATE_DELETE_SNAPSHOT)"},
		{"a source in another namespace", newClass(), func(p *corev1.PersistentVolumeClaim) {
			p.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x", Namespace: &elsewhere}
		}, `PersistentVolumeClaim "elsewhere/x", is in another namespace; start the provisioner with --cross-namespace-sources`},
		{"a VolumeAttributesClass, and no capability", newClass(), func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeAttributesClassName = &vac }, "MODIFY_VOLUME"},
		{"an in-tree class", newClass(func(c *storagev1.StorageClass) { c.Provisioner = "kubernetes.io/aws-ebs" }), func(p *corev1.PersistentVolumeClaim) {
			p.Annotations = map[string]string{provisionerAnnotation: "kubernetes.io/aws-ebs", migration.MigratedToAnnotation: driverName}
		}, `names the in-tree plugin "kubernetes.io/aws-ebs"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			change := c.change
			if change == nil {
				change = func(*corev1.PersistentVolumeClaim) {}
			}
			w := newWorld(t, c.class, newClaim("a", change))
			w.Driver.Controller = []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}
			w.run()
			w.event("Warning ProvisioningFailed ns/a", c.want)
			if len(w.calls()) > 0 || w.stored() > 0 {
				t.Errorf("%d calls, %d intents", len(w.calls()), w.stored())
			}
		})
	}
}

func TestProvision_repeatsTheSameRequestUntilAFinalAnswer(t *testing.T) {
	w := newWorld(t, newClass())
	w.answer(csidriver.Fail(codes.DeadlineExceeded, "slow"), csidriver.Fail(codes.Aborted, "busy"), csidriver.Fail(codes.Unavailable, "away"))
	w.run(func(env *cluster.Env, _ *Options) { env.Retry.Start = 50 * time.Millisecond })
	w.Add(newClaim("a"))
	w.Eventually(func() error {
		if len(w.calls()) == 0 {
			return fmt.Errorf("no call yet")
		}
		return nil
	})
	w.Put(newClass(parameters("tier", "b"))) // the class was made again
	w.complete(1)
	calls := w.calls()
	for _, call := range calls[1:] {
		if !proto.Equal(calls[0], call) {
			t.Errorf("first %v, then %v", calls[0], call)
		}
	}
	if len(calls) != 4 {
		t.Errorf("%d calls", len(calls))
	}
}

func TestProvision_asksAnewAfterAFinalAnswer(t *testing.T) {
	w := newWorld(t, newClass())
	w.answer(csidriver.Fail(codes.Internal, "broken"))
	var hurry func(func(error) bool)
	controller, _ := w.run(func(env *cluster.Env, _ *Options) {
		env.Retry.Start, env.Retry.Max, hurry = time.Hour, time.Hour, env.Hurry
	})
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningFailed", "broken")
	w.Put(newClass(parameters("tier", "b")))
	w.Eventually(func() error {
		if class, _ := controller.classes.Get("fast"); class.Parameters["tier"] != "b" {
			return fmt.Errorf("the class is not read again")
		}
		return nil
	})
	w.Eventually(func() error {
		if hurry(func(error) bool { return true }); len(w.calls()) < 2 {
			return fmt.Errorf("the claim is not tried again")
		}
		return nil
	})
	w.complete(1)
	if got := w.calls()[len(w.calls())-1].GetParameters()["tier"]; got != "b" {
		t.Errorf("the class had changed to b, and %q was sent", got)
	}
}

func TestProvision_finishesForAClaimThatIsGone(t *testing.T) {
	w := newWorld(t, newClass())
	w.answer(csidriver.Fail(codes.DeadlineExceeded, "slow"))
	w.Driver.Creation.Answer = nil
	w.run(func(env *cluster.Env, _ *Options) {
		// Only the claim's end brings it up again.
		env.Retry.Start, env.Retry.Max = time.Hour, time.Hour
	})
	pvc := newClaim("a")
	w.Add(pvc)
	w.event("Warning ProvisioningFailed", "slow")
	w.Delete(pvc)
	w.gone()
	if w.Driver.Count("DeleteVolume") != 1 {
		t.Errorf("calls: %v", w.Driver.Calls())
	}
}

func TestProvision_invalidArgumentWaitsForAnotherClass(t *testing.T) {
	w := newWorld(t, newClass())
	w.answer(csidriver.Fail(codes.InvalidArgument, "tier a is no more"))
	w.run()
	w.Add(newClaim("a"))
	w.event("Warning ProvisioningFailed", "tier a is no more")
	w.Never(150*time.Millisecond, func() error {
		if len(w.calls()) > 1 {
			return fmt.Errorf("called again")
		}
		return nil
	})
	w.Delete(newClass())
	w.Add(newClass(func(c *storagev1.StorageClass) { c.UID = "class-2" }))
	w.saved("pvc-uid-a")
}

func TestProvision_announcesWhatTakesLong(t *testing.T) {
	w := newWorld(t, newClass())
	w.mu.Lock()
	w.answers = append(w.answers, func(*csi.CreateVolumeRequest) error { time.Sleep(announceAfter + 200*time.Millisecond); return nil })
	w.mu.Unlock()
	w.run()
	w.Add(newClaim("a"))
	w.saved("pvc-uid-a")
	w.event(`Normal Provisioning ns/a: External provisioner is provisioning volume for claim "ns/a"`)
}

func TestProvision_passesSecretsByReference(t *testing.T) {
	class := newClass(parameters("csi.storage.k8s.io/provisioner-secret-name", "${pvc.name}-key", "csi.storage.k8s.io/provisioner-secret-namespace", "${pvc.namespace}"))
	w := newWorld(t, class)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a-key"}, Data: map[string][]byte{"password": []byte("hunter2")}}
	w.Add(secret)
	w.run(func(_ *cluster.Env, o *Options) { o.ForgetAfter = time.Hour })
	w.Add(newClaim("a"))
	pv := w.saved("pvc-uid-a")
	if got := w.calls()[0].GetSecrets()["password"]; got != "hunter2" {
		t.Errorf("the driver got %q", got)
	}
	if pv.Annotations[claim.DeletionSecretNameAnnotation] != "a-key" || pv.Annotations[claim.DeletionSecretNamespaceAnnotation] != "ns" {
		t.Errorf("annotations %v", pv.Annotations)
	}
	for _, write := range w.Writes() {
		if slices.Contains([]string{"configmaps", "persistentvolumes"}, write.Resource) && (bytes.Contains(write.Body, []byte("hunter2")) || bytes.Contains(write.Body, []byte("aHVudGVyMg"))) {
			t.Errorf("%s %s holds the secret: %s", write.Verb, write.Resource, write.Body)
		}
	}
}

func TestProvision_sendsWhatTheOptionsSay(t *testing.T) {
	vac := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: driverName, Parameters: map[string]string{"iops": "9"}}
	w := newWorld(t, newClass(), vac)
	w.Driver.Controller = append(w.Driver.Controller, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	w.run(func(_ *cluster.Env, o *Options) {
		o.VolumeNamePrefix, o.VolumeNameUUIDLength, o.ExtraCreateMetadata, o.DefaultFSType = "vol", 3, true, "xfs"
	})
	w.Add(newClaim("a", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.VolumeAttributesClassName = &vac.Name
		p.Spec.Resources.Limits = p.Spec.Resources.Requests
	}))
	pv := w.saved("vol-uid")
	request := w.calls()[0]
	switch {
	case request.GetMutableParameters()["iops"] != "9" || *pv.Spec.VolumeAttributesClassName != "gold":
		t.Errorf("mutable parameters %v, class %v", request.GetMutableParameters(), pv.Spec.VolumeAttributesClassName)
	case request.GetParameters()["csi.storage.k8s.io/pv/name"] != "vol-uid" || request.GetParameters()["csi.storage.k8s.io/pvc/name"] != "a":
		t.Errorf("parameters %v", request.GetParameters())
	case request.GetCapacityRange().GetLimitBytes() != 0:
		t.Errorf("limit %v", request.GetCapacityRange())
	case request.GetVolumeCapabilities()[0].GetMount().GetFsType() != "xfs" || pv.Spec.CSI.FSType != "xfs":
		t.Errorf("capability %v", request.GetVolumeCapabilities())
	}
}

func TestProvision_retainNeedsNoFinalizer(t *testing.T) {
	w := newWorld(t, newClass(retain))
	w.run()
	w.Add(newClaim("a"))
	if pv := w.saved("pvc-uid-a"); len(pv.Finalizers) > 0 {
		t.Errorf("finalizers %v", pv.Finalizers)
	}
}
