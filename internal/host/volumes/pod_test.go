package volumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestFitsMode_saysHowToGoOn: a claim that was made again with another mode does not fit the
// pods, and the holds, of the one before.
func TestFitsMode_saysHowToGoOn(t *testing.T) {
	mounts := corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}
	devices := corev1.Container{Name: "c", VolumeDevices: []corev1.VolumeDevice{{Name: "v"}}}
	for name, row := range map[string]struct {
		container corev1.Container
		block     bool
		want      string
	}{
		"a filesystem, mounted": {mounts, false, ""},
		"a device, as a device": {devices, true, ""},
		"a device, mounted": {mounts, true, "this machine refuses: container c has it in volumeMounts, and its claim has volumeMode Block: " +
			"delete the pod and create it with volumeDevices, or release the hold and hold the claim again"},
		"a filesystem, as a device": {devices, false, "this machine refuses: container c has it in volumeDevices, and " +
			"its claim has volumeMode Filesystem: delete the pod and create it with volumeMounts, or release the hold and hold the claim again"},
		"another volume": {corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "other"}}}, true, ""},
	} {
		for place, pod := range map[string]*corev1.Pod{
			"":                       {Spec: corev1.PodSpec{Containers: []corev1.Container{row.container}}},
			", in an init container": {Spec: corev1.PodSpec{InitContainers: []corev1.Container{row.container}}},
		} {
			t.Run(name+place, func(t *testing.T) {
				got := ""
				if err := fitsMode(pod, "v", row.block); err != nil {
					got = err.Error()
				}
				if got != row.want {
					t.Errorf("got  %q\nwant %q", got, row.want)
				}
			})
		}
	}
}
