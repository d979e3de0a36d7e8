package policytest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/policy/inline"
)

// ExemptNamespace is the one that the settings of the inline cases leave alone.
const ExemptNamespace = "inline-exempt"

// Drivers of the inline cases. Missing has no object.
const (
	Plain      = "plain.csi.example"
	Baseline   = "baseline.csi.example"
	Restricted = "restricted.csi.example"
	Privileged = "privileged.csi.example"
	Unknown    = "unknown.csi.example"
	Both       = "both.csi.example"
	Persistent = "persistent.csi.example"
	ReadOnly   = "readonly.csi.example"
	Writable   = "writable.csi.example"
	Unlisted   = "unlisted.csi.example"
	Missing    = "missing.csi.example"
)

// InlineDrivers are the CSIDrivers of the inline cases.
func InlineDrivers() []*storagev1.CSIDriver {
	driver := func(name string, labels map[string]string, modes ...storagev1.VolumeLifecycleMode) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec:       storagev1.CSIDriverSpec{VolumeLifecycleModes: modes, PodInfoOnMount: new(true), AttachRequired: new(false)},
		}
	}
	const persistent, ephemeral = storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral
	restricted := map[string]string{inline.ProfileLabel: "restricted"}
	return []*storagev1.CSIDriver{
		driver(Plain, nil, ephemeral),
		driver(Baseline, map[string]string{inline.ProfileLabel: "baseline"}, ephemeral),
		driver(Restricted, map[string]string{inline.OpenShiftProfileLabel: "restricted"}, ephemeral),
		driver(Privileged, map[string]string{inline.ProfileLabel: "privileged"}, ephemeral, persistent),
		driver(Unknown, map[string]string{inline.ProfileLabel: "most"}, ephemeral),
		driver(Both, map[string]string{inline.ProfileLabel: "restricted", inline.OpenShiftProfileLabel: "privileged"},
			persistent, ephemeral),
		driver(Persistent, restricted, persistent),
		driver(ReadOnly, map[string]string{inline.ProfileLabel: "restricted", inline.ReadOnlyLabel: "true"}, ephemeral),
		driver(Writable, map[string]string{inline.ProfileLabel: "restricted", inline.ReadOnlyLabel: "false"}, ephemeral),
		driver(Unlisted, restricted, ephemeral),
	}
}

// FindInlineDriver finds a driver, for a host or a webhook.
func FindInlineDriver(name string) *storagev1.CSIDriver {
	for _, driver := range InlineDrivers() {
		if driver.Name == name {
			return driver
		}
	}
	return nil
}

// InlineDefaults are the drivers that each mode allows in a namespace that says
// nothing: all but one.
func InlineDefaults() []string {
	return []string{Plain, Baseline, Restricted, Privileged, Unknown, Both, Persistent, ReadOnly, Writable, Missing}
}

// InlineOptions are the settings of the inline cases.
func InlineOptions() inline.Options {
	text := strings.Join(InlineDefaults(), ", ")
	return inline.Options{
		Defaults: map[inline.Mode]string{inline.Enforce: text, inline.Warn: text, inline.Audit: text},
		Exempt:   []string{ExemptNamespace}, Profiles: true,
	}
}

// InlineWant is a finding that a case must have.
type InlineWant struct {
	Mode   inline.Mode
	Rule   inline.Rule
	Volume string
}

// InlineCase is an object and what each form of the rules must say of it.
type InlineCase struct {
	Name        string
	Namespace   string            // its name, where it matters
	Annotations map[string]string // of the namespace
	Labels      map[string]string // of the namespace
	Kind        string            // of the object; "" is Pod
	Volumes     []corev1.Volume
	Want        []InlineWant
	// Unseen says that admission policies find nothing: they are evaluated with
	// each CSIDriver, and there is none for this one.
	Unseen bool
}

// Inline is an inline volume of a driver, with the keys of its attributes.
func Inline(name, driver string, keys ...string) corev1.Volume {
	source := &corev1.CSIVolumeSource{Driver: driver}
	for _, key := range keys {
		if source.VolumeAttributes == nil {
			source.VolumeAttributes = map[string]string{}
		}
		source.VolumeAttributes[key] = "x"
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{CSI: source}}
}

// Pod is one with volumes, which Pod Security admission has nothing against.
func Pod(namespace string, volumes ...corev1.Volume) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: namespace}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(false), Volumes: volumes,
		Containers: []corev1.Container{container("main", volumes)}, InitContainers: []corev1.Container{container("first", volumes)},
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
	}}
	pod.Spec.Containers = append(pod.Spec.Containers, container("without", nil))
	return pod
}

func container(name string, volumes []corev1.Volume) corev1.Container {
	c := corev1.Container{Name: name, Image: "x", SecurityContext: &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}}
	for _, volume := range volumes {
		for i := range 2 { // twice: a volume has as many mounts as one likes
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: fmt.Sprintf("/%s/%d", volume.Name, i)})
		}
	}
	return c
}

// allows is the annotation of a mode.
func allows(mode inline.Mode, text string) map[string]string {
	return map[string]string{inline.ListPrefix + string(mode): text}
}

// levels are the labels of a namespace for enforce, warn and audit; "" is none.
func levels(enforce, warn, audit string) map[string]string {
	labels := map[string]string{}
	for mode, level := range map[inline.Mode]string{inline.Enforce: enforce, inline.Warn: warn, inline.Audit: audit} {
		if level != "" {
			labels[inline.LevelPrefix+string(mode)] = level
		}
	}
	return labels
}

// in checks for a finding in each of the given modes.
func in(rule inline.Rule, volume string, modes ...inline.Mode) []InlineWant {
	var want []InlineWant
	for _, mode := range modes {
		want = append(want, InlineWant{mode, rule, volume})
	}
	return want
}

// CheckReadOnly returns the faults of a pod that was made of Pod
// after the volumes of drivers that want it were made read-only: names are those.
func CheckReadOnly(pod *corev1.Pod, names ...string) error {
	for _, volume := range pod.Spec.Volumes {
		if volume.CSI == nil {
			continue
		}
		if is := volume.CSI.ReadOnly != nil && *volume.CSI.ReadOnly; is != slices.Contains(names, volume.Name) {
			return fmt.Errorf("volume %s: read-only is %v", volume.Name, is)
		}
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if container.Name != "without" && len(container.VolumeMounts) != 2*len(pod.Spec.Volumes) {
			return fmt.Errorf("container %s has %d mounts", container.Name, len(container.VolumeMounts))
		}
		for _, mount := range container.VolumeMounts {
			if mount.ReadOnly != slices.Contains(names, mount.Name) {
				return fmt.Errorf("container %s, mount %s: read-only is %v", container.Name, mount.MountPath, mount.ReadOnly)
			}
		}
	}
	return nil
}
