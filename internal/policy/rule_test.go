package policy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/policy"
)

const canonical = `\\.\pipe\csi-proxy-v1`

// pod has the path as a volume, and one container.
func pod(path string, change func(*policy.Pod)) policy.Pod {
	p := policy.Pod{
		Namespace: "storage",
		Spec: &corev1.PodSpec{
			ServiceAccountName: "node-plugin",
			Containers:         []corev1.Container{{Name: "one"}},
			Volumes: []corev1.Volume{
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "pipe", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}},
			},
		},
	}
	if change != nil {
		change(&p)
	}
	return p
}

func windowsOptions(hostProcess bool) *corev1.WindowsSecurityContextOptions {
	return &corev1.WindowsSecurityContextOptions{HostProcess: &hostProcess}
}

func privilegedContainer(privileged bool) corev1.Container {
	return corev1.Container{Name: "c", SecurityContext: &corev1.SecurityContext{Privileged: &privileged}}
}

func hostProcessContainer(hostProcess bool) corev1.Container {
	return corev1.Container{Name: "c", SecurityContext: &corev1.SecurityContext{WindowsOptions: windowsOptions(hostProcess)}}
}

func TestCheckPod_whoIsApproved(t *testing.T) {
	allowed := policy.Account{Namespace: "storage", Name: "node-plugin"}
	for _, c := range []struct {
		name    string
		label   string
		allowed []policy.Account
		change  func(*policy.Pod)
		refused bool
	}{
		{name: "none is by default", refused: true},
		{name: "an allowed account", allowed: []policy.Account{allowed}},
		{name: "an account of that name elsewhere", allowed: []policy.Account{allowed}, change: func(p *policy.Pod) { p.Namespace = "other" }, refused: true},
		{name: "another account there", allowed: []policy.Account{allowed}, change: func(p *policy.Pod) { p.Spec.ServiceAccountName = "x" }, refused: true},
		{name: "no account named", allowed: []policy.Account{allowed}, change: func(p *policy.Pod) { p.Spec.ServiceAccountName = "" }, refused: true},
		{name: "the default account, allowed", allowed: []policy.Account{{Namespace: "storage", Name: "default"}}, change: func(p *policy.Pod) { p.Spec.ServiceAccountName = "" }},
		{name: "the old field", allowed: []policy.Account{allowed}, change: func(p *policy.Pod) {
			p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = "", "node-plugin"
		}},
		{name: "without the label", label: "tier=node", allowed: []policy.Account{allowed}, refused: true},
		{name: "with another value", label: "tier=node", allowed: []policy.Account{allowed}, change: func(p *policy.Pod) { p.Labels = map[string]string{"tier": "x"} }, refused: true},
		{name: "with the label", label: "tier=node", allowed: []policy.Account{allowed}, change: func(p *policy.Pod) { p.Labels = map[string]string{"tier": "node"} }},
		{name: "an empty label that is not there", label: "tier=", allowed: []policy.Account{allowed}, refused: true},
		{name: "host process of the pod", change: func(p *policy.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: windowsOptions(true)}
		}},
		{name: "host process of the pod, not of a container", change: func(p *policy.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: windowsOptions(true)}
			p.Spec.InitContainers = []corev1.Container{hostProcessContainer(false)}
		}, refused: true},
		{name: "host process of each container", change: func(p *policy.Pod) { p.Spec.Containers = []corev1.Container{hostProcessContainer(true)} }},
		{name: "host process of one container", change: func(p *policy.Pod) { p.Spec.Containers = append(p.Spec.Containers, hostProcessContainer(true)) }, refused: true},
		{name: "privileged", change: func(p *policy.Pod) { p.Spec.Containers = []corev1.Container{privilegedContainer(true)} }},
		{name: "privileged is false", change: func(p *policy.Pod) { p.Spec.Containers = []corev1.Container{privilegedContainer(false)} }, refused: true},
		{name: "one of two is privileged", change: func(p *policy.Pod) { p.Spec.Containers = append(p.Spec.Containers, privilegedContainer(true)) }, refused: true},
		{name: "privileged, but an init container is not", change: func(p *policy.Pod) {
			p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{privilegedContainer(true)}, []corev1.Container{{Name: "i"}}
		}, refused: true},
		{name: "privileged, but an ephemeral container is not", change: func(p *policy.Pod) {
			p.Spec.Containers = []corev1.Container{privilegedContainer(true)}
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
		}, refused: true},
		{name: "privileged with an operating system", change: func(p *policy.Pod) {
			p.Spec.Containers, p.Spec.OS = []corev1.Container{privilegedContainer(true)}, &corev1.PodOS{Name: corev1.Windows}
		}, refused: true},
		{name: "no containers", change: func(p *policy.Pod) { p.Spec.Containers = nil }, refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rule(t, c.label, c.allowed...)
			err := r.CheckPod(pod(canonical, c.change))
			if (err != nil) != c.refused {
				t.Errorf("refused: %v, want %v", err, c.refused)
			}
			if err != nil && (!strings.Contains(err.Error(), "volume pipe") || !strings.Contains(err.Error(), "csi-proxy-v1")) {
				t.Errorf("the refusal names neither volume nor path: %v", err)
			}
			if err := r.CheckPod(pod(`\\.\PIPE\csi-proxy-v1`, c.change)); err == nil {
				t.Error("another spelling is refused to everybody, but not here")
			}
			if err := r.CheckPod(pod(`C:\data`, c.change)); err != nil {
				t.Errorf("an ordinary directory: %v", err)
			}
		})
	}
}

func TestCheckVolume_approvesNoIdentity(t *testing.T) {
	r := rule(t, "", policy.Account{Namespace: "storage", Name: "node-plugin"})
	for path, refused := range map[string]bool{canonical: true, `//./pipe/csi-proxy-v1`: true, `C:\data`: false, `\\.\pipe\docker_engine`: false} {
		sources := map[string]corev1.PersistentVolumeSource{
			"hostPath": {HostPath: &corev1.HostPathVolumeSource{Path: path}},
			"local":    {Local: &corev1.LocalVolumeSource{Path: path}},
		}
		for name, source := range sources {
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
			err := r.CheckVolume(volume)
			if (err != nil) != refused {
				t.Errorf("%s %s: %v, want refused %v", name, path, err, refused)
			}
			if err != nil && !strings.Contains(err.Error(), "pv-1: spec."+name+".path") {
				t.Errorf("the refusal names neither volume nor field: %v", err)
			}
		}
	}
}

func TestParseAccount(t *testing.T) {
	if got, err := policy.ParseAccount("kube-system/ebs-csi-node-sa"); err != nil || got.String() != "kube-system/ebs-csi-node-sa" {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "name", "/name", "ns/", "ns/a/b", "*/name", "NS/name", "ns/Name"} {
		if got, err := policy.ParseAccount(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func TestNew_rejectsAnInvalidLabel(t *testing.T) {
	for _, label := range []string{"tier", "=x", "a b=c", "a=b c"} {
		if _, err := policy.New(nil, label); err == nil {
			t.Errorf("%q is taken", label)
		}
	}
}
