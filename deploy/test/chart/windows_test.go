package chart

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const pipe = `\\.\pipe\csi-proxy-v1`

// windowsSets are the DaemonSets for Windows nodes, by the name of their container.
func windowsSets(t *testing.T, values string) map[string]*appsv1.DaemonSet {
	t.Helper()
	found := map[string]*appsv1.DaemonSet{}
	for _, set := range of[*appsv1.DaemonSet](render(t, values)) {
		if set.Spec.Template.Spec.NodeSelector["kubernetes.io/os"] == "windows" {
			found[set.Spec.Template.Spec.Containers[0].Name] = set
		}
	}
	return found
}

// forms are the values of the installations on Windows nodes.
func forms() map[string]string {
	return map[string]string{
		"plain":             "{backend: ebs, windows: {enabled: true}}",
		"plain, with proxy": "{backend: ebs, windows: {enabled: true, csiProxy: {enabled: true}}}",
		"HostProcess":       "{backend: ebs, windows: {enabled: true, hostProcess: true}}",
		"proxy alone":       "{backend: local, windows: {csiProxy: {enabled: true}}}",
	}
}

func TestWindows_isOffUnlessAskedFor(t *testing.T) {
	for values, want := range map[string]int{
		"{backend: ebs}": 0, "{backend: local}": 0, forms()["plain"]: 1, forms()["plain, with proxy"]: 2, forms()["HostProcess"]: 1, forms()["proxy alone"]: 1,
	} {
		if got := len(windowsSets(t, values)); got != want {
			t.Errorf("%s: %d DaemonSets for Windows; want %d", values, got, want)
		}
	}
}

// The API server refuses a pod with os: windows in which one of these is set,
// with any value (k/k pkg/apis/core/validation, validateWindows).
func TestWindows_setsNothingThatIsLinuxs(t *testing.T) {
	for form, values := range forms() {
		for name, set := range windowsSets(t, values) {
			spec := set.Spec.Template.Spec
			if spec.OS == nil || spec.OS.Name != corev1.Windows {
				t.Errorf("%s: %s does not say that it is for Windows", form, name)
			}
			if spec.HostPID || spec.HostIPC || spec.HostUsers != nil || spec.ShareProcessNamespace != nil || spec.Resources != nil {
				t.Errorf("%s: %s: the pod shares what Windows has not", form, name)
			}
			if s := spec.SecurityContext; s != nil {
				if rest := *s; !onlyWindowsOfPod(rest) {
					t.Errorf("%s: %s: the pod's security context has more than windowsOptions: %+v", form, name, rest)
				}
			}
			for _, container := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
				if c := container.SecurityContext; c != nil && !onlyWindows(*c) {
					t.Errorf("%s: %s: the security context has more than windowsOptions: %+v", form, name, *c)
				}
			}
		}
	}
}

func onlyWindowsOfPod(c corev1.PodSecurityContext) bool {
	c.WindowsOptions = nil
	return c.SELinuxOptions == nil && c.RunAsUser == nil && c.RunAsGroup == nil && c.RunAsNonRoot == nil && c.SupplementalGroups == nil &&
		c.SupplementalGroupsPolicy == nil && c.FSGroup == nil && c.FSGroupChangePolicy == nil && c.Sysctls == nil && c.SeccompProfile == nil &&
		c.AppArmorProfile == nil && c.SELinuxChangePolicy == nil
}

func onlyWindows(c corev1.SecurityContext) bool {
	c.WindowsOptions = nil
	return c == corev1.SecurityContext{}
}

// In a HostProcess pod all containers are HostProcess, on the host's network, and
// mount no pipe and no socket, which the runtime rejects. A plain pod has no
// privilege on the host.
func TestWindows_theTwoFormsAreWhole(t *testing.T) {
	for form, values := range forms() {
		for name, set := range windowsSets(t, values) {
			spec := set.Spec.Template.Spec
			host := spec.SecurityContext != nil && spec.SecurityContext.WindowsOptions != nil && *spec.SecurityContext.WindowsOptions.HostProcess
			if want := name == "csi-proxy" || form == "HostProcess"; host != want {
				t.Errorf("%s: %s is a HostProcess pod: %t", form, name, host)
			}
			if spec.HostNetwork != host {
				t.Errorf("%s: %s: host network %t, HostProcess %t", form, name, spec.HostNetwork, host)
			}
			container := spec.Containers[0]
			if host && (len(spec.Volumes) > 0 || len(container.VolumeMounts) > 0 || *spec.SecurityContext.WindowsOptions.RunAsUserName != `NT AUTHORITY\SYSTEM`) {
				t.Errorf("%s: %s: volumes %v, user %s", form, name, spec.Volumes, *spec.SecurityContext.WindowsOptions.RunAsUserName)
			}
			if !host && *container.SecurityContext.WindowsOptions.RunAsUserName != "ContainerAdministrator" {
				t.Errorf("%s: %s runs as %s", form, name, *container.SecurityContext.WindowsOptions.RunAsUserName)
			}
		}
	}
}

func TestWindows_pathsOfTheSocketsFitTogether(t *testing.T) {
	const kubelet = `D:\k`
	plain := windowsSets(t, `{backend: ebs, driverName: my.driver, windows: {enabled: true, kubeletDir: 'D:\k'}}`)["holdfast"].Spec.Template.Spec
	given := flags(plain.Containers[0].Args)
	for name, want := range map[string]string{
		"endpoint": "unix:/csi/csi.sock", "registration-dir": `C:\registration`, "registration-path": kubelet + `\plugins\my.driver\csi.sock`,
		"kubelet-dir": kubelet, "windows-host": "proxy", "driver-name": "my.driver",
	} {
		if given[name] != want {
			t.Errorf("--%s=%s; want %s", name, given[name], want)
		}
	}
	mounts := map[string]string{}
	for _, mount := range plain.Containers[0].VolumeMounts {
		mounts[mount.Name] = mount.MountPath
	}
	for name, want := range map[string][2]string{ // on the node, and in the container
		"plugin": {kubelet + `\plugins\my.driver`, `C:\csi`}, "registration": {kubelet + `\plugins_registry`, `C:\registration`},
		"kubelet": {kubelet, kubelet}, "csi-proxy": {pipe, pipe},
	} {
		if got := [2]string{hostPath(plain, name), mounts[name]}; got != want {
			t.Errorf("%s is mounted %v; want %v", name, got, want)
		}
	}
	for _, volume := range plain.Volumes {
		if volume.Name == "csi-proxy" && *volume.HostPath.Type != "" {
			t.Error("a pipe has no type that the kubelet could check")
		}
	}
	host := windowsSets(t, `{backend: ebs, driverName: my.driver, windows: {enabled: true, hostProcess: true, kubeletDir: 'D:\k'}}`)["holdfast"].Spec.Template.Spec
	given = flags(host.Containers[0].Args)
	for name, want := range map[string]string{
		"endpoint": `unix://` + kubelet + `\plugins\my.driver\csi.sock`, "registration-dir": kubelet + `\plugins_registry`, "registration-path": "",
		"kubelet-dir": kubelet, "windows-host": "native",
	} {
		if given[name] != want {
			t.Errorf("--%s=%s; want %s", name, given[name], want)
		}
	}
}

// The driver of a drained node keeps running until its volumes are detached, also
// on Windows, and the proxy closes its pipes before the next one starts.
func TestWindows_theDriverWaitsForDetachments(t *testing.T) {
	for form, program := range map[string]string{"plain": `C:\holdfast.exe`, "HostProcess": `%CONTAINER_SANDBOX_MOUNT_POINT%\holdfast.exe`} {
		spec := windowsSets(t, forms()[form])["holdfast"].Spec.Template.Spec
		lifecycle := spec.Containers[0].Lifecycle
		if lifecycle == nil {
			t.Errorf("%s: the driver is stopped at once", form)
			continue
		}
		command := lifecycle.PreStop.Exec.Command
		given := flags(command)
		if !slices.Equal(command[:2], []string{program, "pre-stop"}) || given["driver-name"] != "ebs.csi.aws.com" || given["timeout"] != "18s" || *spec.TerminationGracePeriodSeconds != 30 {
			t.Errorf("%s: %v of %d s", form, command, *spec.TerminationGracePeriodSeconds)
		}
	}
	off := strings.Replace(forms()["plain"], "backend: ebs", "backend: ebs, ebs: {waitForDetach: false}", 1)
	if windowsSets(t, off)["holdfast"].Spec.Template.Spec.Containers[0].Lifecycle != nil {
		t.Error("it waits although it shall not")
	}
}

func TestWindows_theProxyDoesNotSurge(t *testing.T) {
	set := windowsSets(t, forms()["plain, with proxy"])["csi-proxy"]
	update := set.Spec.UpdateStrategy
	if update.Type != appsv1.RollingUpdateDaemonSetStrategyType || update.RollingUpdate.MaxSurge.String() != "0" {
		t.Errorf("%+v", update)
	}
	container := set.Spec.Template.Spec.Containers[0]
	given := flags(container.Args)
	if given["kubelet-path"] != `C:\var\lib\kubelet` || given["metrics-bind-address"] != ":9809" || container.Ports[0].HostPort != 9809 {
		t.Errorf("%v, %+v", given, container.Ports)
	}
	if _, ends := given["exit-if-taken"]; ends {
		t.Error("it does not wait for pipes that an older one serves")
	}
	if strings.HasSuffix(container.Command[0], "csi-proxy.exe") != true || *set.Spec.Template.Spec.AutomountServiceAccountToken {
		t.Errorf("%v", container.Command)
	}
}

func TestWindows_aNodeIsGivenWhatOthersAre(t *testing.T) {
	windows := flags(windowsSets(t, everythingEBS)["holdfast"].Spec.Template.Spec.Containers[0].Args)
	for name, want := range map[string]string{"metadata-sources": "kubernetes", "reserved-volume-attachments": "2", "remove-startup-taint": "true"} {
		if windows[name] != want {
			t.Errorf("--%s is %q; want %q", name, windows[name], want)
		}
	}
	for _, linux := range []string{"legacy-xfs", "sys-root", "dev-root"} {
		if _, given := windows[linux]; given {
			t.Errorf("a Windows node is given --%s", linux)
		}
	}
}
