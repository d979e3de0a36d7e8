//go:build kubernetes

package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-csi/holdfast/internal/policy"
	"github.com/holdfast-csi/holdfast/internal/policy/policytest"
)

// TestPipePolicy installs the shipped rule, first as an admission policy and then as a
// webhook, and tries to evade each with pods. The two are tested one after the other:
// an object that one rejects never reaches the other.
func TestPipePolicy(t *testing.T) {
	t.Parallel()
	w := newPipeWorld(t)
	t.Run("policy", func(t *testing.T) {
		remove := w.installPolicy(t)
		defer remove()
		w.waitUntilRefused(t)
		w.tryEverything(t)
	})
	t.Run("webhook", func(t *testing.T) {
		hook := w.installWebhook(t)
		defer hook.remove()
		w.waitUntilRefused(t)
		w.tryEverything(t)
		w.tryExemptions(t)
		hook.process.kill()
		// The webhook is down: its failure policy rejects pods, except in the exempt
		// namespace, in which the webhook's own pods start.
		if err := w.create(t, w.pod(w.namespace, other, `C:\data`)); !apierrors.IsInternalError(err) {
			t.Errorf("without the webhook: %v, want an internal error", err)
		}
		w.tryExemptions(t)
	})
}

const (
	allowed = "node-plugin" // in the first namespace only
	other   = "another"
)

type pipeWorld struct {
	ctx                          context.Context
	core                         kubernetes.Interface
	namespace, elsewhere, exempt string
}

func newPipeWorld(t *testing.T) *pipeWorld {
	t.Helper()
	w := &pipeWorld{ctx: t.Context(), core: kubernetes.NewForConfigOrDie(shared), namespace: "pipe-a", elsewhere: "pipe-b", exempt: "pipe-exempt"}
	for _, namespace := range []string{w.namespace, w.elsewhere, w.exempt} {
		_, err := w.core.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, account := range []string{allowed, other, "default"} {
			_, err := w.core.CoreV1().ServiceAccounts(namespace).Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
	}
	return w
}

// waitUntilRefused waits until the API server applies the rule.
func (w *pipeWorld) waitUntilRefused(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(100 * time.Millisecond) {
		asked := w.create(t, w.pod(w.namespace, other, canonicalPipe))
		pod := apierrors.IsForbidden(asked)
		template := apierrors.IsForbidden(w.createTemplates(t, w.pod(w.namespace, other, canonicalPipe).Spec)["PodTemplate"])
		volume := apierrors.IsForbidden(w.createVolume(canonicalPipe, false))
		if pod && template && volume {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the rule does not act: pod %v (%v), template %v, volume %v", pod, asked, template, volume)
		}
	}
}

func (w *pipeWorld) tryEverything(t *testing.T) {
	t.Run("spellings", w.trySpellings)
	t.Run("accounts", w.tryAccounts)
	t.Run("containers", w.tryContainers)
	t.Run("ephemeral containers", w.tryEphemeralContainers)
	t.Run("templates", w.tryTemplates)
	t.Run("finalizers", w.tryFinalizers)
}

// trySpellings tries every spelling of a path, in approved pods, in others, and in
// PersistentVolumes.
func (w *pipeWorld) trySpellings(t *testing.T) {
	for _, s := range policytest.Spellings() {
		for account, approved := range map[string]bool{allowed: true, other: false} {
			want := s.Want == policy.Ordinary || s.Want == policy.ProxyPipe && approved
			w.expect(t, fmt.Sprintf("%s, pod of %s", s.Name, account), want, w.create(t, w.pod(w.namespace, account, s.Path)))
		}
		for _, local := range []bool{false, true} {
			w.expect(t, fmt.Sprintf("%s, PersistentVolume, local %v", s.Name, local), s.Want == policy.Ordinary, w.createVolume(s.Path, local))
		}
	}
}

// expect also counts the API server's own rejection of a path as a rejection.
func (w *pipeWorld) expect(t *testing.T, what string, admitted bool, err error) {
	t.Helper()
	switch {
	case admitted && err != nil:
		t.Errorf("%s: %v, want it admitted", what, err)
	case !admitted && err == nil:
		t.Errorf("%s: admitted", what)
	case !admitted && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		t.Errorf("%s: %v, want it forbidden", what, err)
	}
}

func (w *pipeWorld) tryAccounts(t *testing.T) {
	elsewhere := w.pod(w.elsewhere, allowed, canonicalPipe)
	w.expect(t, "an account of that name in another namespace", false, w.create(t, elsewhere))
	unnamed := w.pod(w.namespace, "", canonicalPipe)
	w.expect(t, "no account named", false, w.create(t, unnamed))
	generated := w.pod(w.namespace, other, canonicalPipe)
	generated.Name, generated.GenerateName = "", "x-"
	w.expect(t, "a generated name", false, w.create(t, generated))
	second := w.pod(w.namespace, other, `C:\data`)
	second.Spec.Volumes = append(second.Spec.Volumes, corev1.Volume{Name: "second", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: canonicalPipe}}})
	w.expect(t, "the second volume", false, w.create(t, second))
	parent := w.pod(w.namespace, allowed, `\\.\pipe`)
	parent.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "pipe", MountPath: `C:\p`, SubPath: "csi-proxy-v1"}}
	w.expect(t, "the parent with a subPath", false, w.create(t, parent))
	for _, system := range []corev1.OSName{corev1.Windows, corev1.Linux} {
		pod := w.pod(w.namespace, other, canonicalPipe)
		pod.Spec.OS = &corev1.PodOS{Name: system}
		w.expect(t, "with system "+string(system), false, w.create(t, pod))
	}
}

func (w *pipeWorld) tryContainers(t *testing.T) {
	yes, no := true, false
	hostProcess := func(value *bool) *corev1.WindowsSecurityContextOptions {
		return &corev1.WindowsSecurityContextOptions{HostProcess: value}
	}
	privileged := func(value *bool) *corev1.SecurityContext { return &corev1.SecurityContext{Privileged: value} }
	for _, c := range []struct {
		name     string
		admitted bool
		change   func(*corev1.PodSpec)
	}{
		{"privileged", true, func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = privileged(&yes) }},
		{"privileged is false", false, func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = privileged(&no) }},
		{"privileged next to an init container that is not", false, func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = privileged(&yes)
			s.InitContainers = []corev1.Container{{Name: "i", Image: "x"}}
		}},
		{"privileged with a system", false, func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext, s.OS = privileged(&yes), &corev1.PodOS{Name: corev1.Windows}
		}},
		{"host process of the pod", true, func(s *corev1.PodSpec) {
			s.HostNetwork, s.SecurityContext = true, &corev1.PodSecurityContext{WindowsOptions: hostProcess(&yes)}
		}},
		{"host process of the container", true, func(s *corev1.PodSpec) {
			s.HostNetwork, s.Containers[0].SecurityContext = true, &corev1.SecurityContext{WindowsOptions: hostProcess(&yes)}
		}},
		{"no host process", false, func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: hostProcess(&no)}
		}},
		{"one container of two is host process", false, func(s *corev1.PodSpec) {
			s.HostNetwork, s.Containers[0].SecurityContext = true, &corev1.SecurityContext{WindowsOptions: hostProcess(&yes)}
			s.Containers = append(s.Containers, corev1.Container{Name: "second", Image: "x"})
		}},
	} {
		pod := w.pod(w.namespace, other, canonicalPipe)
		c.change(&pod.Spec)
		w.expect(t, c.name, c.admitted, w.create(t, pod))
	}
}

// tryEphemeralContainers adds a container that is not approved to an approved pod.
func (w *pipeWorld) tryEphemeralContainers(t *testing.T) {
	yes := true
	pod := w.pod(w.namespace, other, canonicalPipe)
	pod.Name, pod.Spec.Containers[0].SecurityContext = "debugged", &corev1.SecurityContext{Privileged: &yes}
	pods := w.core.CoreV1().Pods(w.namespace)
	made, err := pods.Create(w.ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pods.Delete(w.ctx, made.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Error(err)
		}
	}()
	debug := func(security *corev1.SecurityContext) error {
		changed, err := pods.Get(w.ctx, made.Name, metav1.GetOptions{}) // the scheduler writes to it, too
		if err != nil {
			t.Fatal(err)
		}
		changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "x", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
			SecurityContext: security, VolumeMounts: []corev1.VolumeMount{{Name: "pipe", MountPath: canonicalPipe}},
		}}}
		changed.ResourceVersion = ""
		_, err = pods.UpdateEphemeralContainers(w.ctx, made.Name, changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	w.expect(t, "an ephemeral container that is not privileged", false, debug(nil))
	w.expect(t, "one that is", true, debug(&corev1.SecurityContext{Privileged: &yes}))
}

func (w *pipeWorld) tryTemplates(t *testing.T) {
	for account, admitted := range map[string]bool{allowed: true, other: false} {
		for kind, err := range w.createTemplates(t, w.pod(w.namespace, account, canonicalPipe).Spec) {
			w.expect(t, kind+" of "+account, admitted, err)
		}
	}
	for kind, err := range w.createTemplates(t, w.pod(w.namespace, allowed, `//./pipe/csi-proxy-v1`).Spec) {
		w.expect(t, kind+" with another spelling", false, err)
	}
}

// tryFinalizers removes the finalizer of a deleted volume that is older than the rule.
func (w *pipeWorld) tryFinalizers(t *testing.T) {
	volumes := w.core.CoreV1().PersistentVolumes()
	patch := func(text string) error {
		_, err := volumes.Patch(w.ctx, oldVolume, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	err := patch(`{"metadata":{"labels":{"more":"x"}}}`)
	w.expect(t, "an update of an old volume", false, err)
	if err := volumes.Delete(w.ctx, oldVolume, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err = patch(`{"metadata":{"finalizers":null}}`)
	w.expect(t, "the end of an old volume", true, err)
}

func (w *pipeWorld) tryExemptions(t *testing.T) {
	w.expect(t, "an exempt namespace", true, w.create(t, w.pod(w.exempt, other, canonicalPipe)))
}

const canonicalPipe = `\\.\pipe\csi-proxy-v1`

func (w *pipeWorld) pod(namespace, account, path string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin", Namespace: namespace, Labels: map[string]string{"app": "plugin"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "c", Image: "x"}},
			Volumes:    []corev1.Volume{{Name: "pipe", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}},
		},
	}
}

// create makes a dry-run request.
func (w *pipeWorld) create(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	_, err := w.core.CoreV1().Pods(pod.Namespace).Create(w.ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "serviceaccount") && strings.Contains(err.Error(), "not found") {
		t.Fatalf("the test's account is missing: %v", err)
	}
	return err
}
