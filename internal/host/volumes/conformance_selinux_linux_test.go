package volumes

import (
	"errors"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// selinux makes the machine one that labels its files.
func (w *world) selinux() {
	w.manager.node.selinux = func() bool { return true }
	w.object(func(spec *storagev1.CSIDriverSpec) { yes := true; spec.SELinuxMount = &yes })
}

func podWithLabel(name, level string, policy corev1.PodSELinuxChangePolicy) *corev1.Pod {
	p := pod(name, "a")
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
	if level == "" {
		p.Spec.SecurityContext.SELinuxOptions = nil
	}
	if policy != "" {
		p.Spec.SecurityContext.SELinuxChangePolicy = &policy
	}
	return p
}

// Which pods' label becomes a
// mount option.
func TestSELinux_theLabelIsAMountOption(t *testing.T) {
	const level = "s0:c1,c2"
	option := `context="system_u:object_r:container_file_t:s0:c1,c2"`
	for _, test := range []struct {
		name      string
		mode      corev1.PersistentVolumeAccessMode
		level     string
		policy    corev1.PodSELinuxChangePolicy
		options   []string
		supported bool
		want      []string
	}{
		{"ReadWriteOncePod", corev1.ReadWriteOncePod, level, "", nil, true, []string{option}},
		{"next to other options", corev1.ReadWriteOncePod, level, "", []string{"noatime"}, true, []string{"noatime", option}},
		{"ReadWriteOnce", corev1.ReadWriteOnce, level, "", nil, true, []string{option}},
		{"the policy MountOption", corev1.ReadWriteOnce, level, corev1.SELinuxChangePolicyMountOption, nil, true, []string{option}},
		{"the policy Recursive", corev1.ReadWriteOnce, level, corev1.SELinuxChangePolicyRecursive, nil, true, nil},
		{"a pod without a label", corev1.ReadWriteOncePod, "", "", nil, true, nil},
		{"a driver that does not say so", corev1.ReadWriteOncePod, level, "", nil, false, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, a := newServing(t)
			w.volume(w.ensured("a"), func(pv *corev1.PersistentVolume) {
				pv.Spec.AccessModes, pv.Spec.MountOptions = []corev1.PersistentVolumeAccessMode{test.mode}, test.options
			})
			w.selinux()
			if !test.supported {
				w.object(func(*storagev1.CSIDriverSpec) {})
			}
			w.mount(w.create(podWithLabel("web", test.level, test.policy)))
			staged := one[*csi.NodeStageVolumeRequest](t, a).GetVolumeCapability().GetMount().GetMountFlags()
			published := one[*csi.NodePublishVolumeRequest](t, a).GetVolumeCapability().GetMount().GetMountFlags()
			if !slices.Equal(staged, test.want) || !slices.Equal(published, test.want) {
				t.Errorf("staged with %v, published with %v, want %v", staged, published, test.want)
			}
		})
	}
}

// Pods with the same label share the staged volume. A pod with another label waits until
// it is unstaged.
func TestSELinux_anotherLabelWaits(t *testing.T) {
	recursive := corev1.SELinuxChangePolicyRecursive
	for _, test := range []struct {
		name          string
		mode          corev1.PersistentVolumeAccessMode
		first, second *corev1.Pod
		shared        bool
	}{
		{"the same", corev1.ReadWriteOnce, podWithLabel("one", "s0:c1", ""), podWithLabel("two", "s0:c1", ""), true},
		{"the same in other words", corev1.ReadWriteOnce, podWithLabel("one", "s0:c1,c2", ""), podWithLabel("two", "s0:c2,c1", ""), true},
		{"another", corev1.ReadWriteOnce, podWithLabel("one", "s0:c1", ""), podWithLabel("two", "s0:c2", ""), false},
		{"another, ReadWriteOncePod", corev1.ReadWriteOncePod, podWithLabel("one", "s0:c1", ""), podWithLabel("two", "s0:c2", ""), false},
		{"then relabelled", corev1.ReadWriteOnce, podWithLabel("one", "s0:c1", ""), podWithLabel("two", "s0:c1", recursive), false},
		{"relabelled before", corev1.ReadWriteOnce, podWithLabel("one", "s0:c1", recursive), podWithLabel("two", "s0:c1", ""), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, _ := newServing(t)
			w.volume(w.ensured("a"), func(pv *corev1.PersistentVolume) {
				pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{test.mode}
			})
			w.selinux()
			w.create(test.first)
			w.create(test.second)
			w.mount(test.first)
			_, err := w.manager.MountPod(t.Context(), test.second)
			if (err == nil) != test.shared || err != nil && !errors.Is(err, ErrWaiting) {
				t.Errorf("the second: %v", err)
			}
			w.unmount(test.first)
			w.mount(test.second)
			if n := w.driver.Count("NodeStageVolume"); (n == 1) != test.shared {
				t.Errorf("staged %d times", n)
			}
		})
	}
}

func TestSELinux_containersMustAgree(t *testing.T) {
	w, _ := newServing(t)
	w.ensured("a")
	w.selinux()
	p := podWithLabel("web", "s0:c1", "")
	p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
	p.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c9"}}
	w.refused(w.create(p), "Recursive")
}
