package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/rights"
)

const sidecarsDirectory = "../../helm/holdfast-sidecars"

// hostpath are values for csi-driver-host-path.
const hostpath = `
driverName: hostpath.csi.k8s.io
args: [--extra-create-metadata, --attacher-timeout=5m]
controller: {driver: {image: "hostpath:v1.18.0", args: [--endpoint=unix:///csi/csi.sock]}}
node:
  driver:
    name: hostpath
    image: "hostpath:v1.18.0"
    args: [--endpoint=unix:///csi/csi.sock]
    securityContext: {privileged: true}
    volumeMounts: [{name: pods, mountPath: /var/lib/kubelet/pods, mountPropagation: Bidirectional}]
  volumes: [{name: pods, hostPath: {path: /var/lib/kubelet/pods}}]
`

func sidecarsChart(t *testing.T, o Options) (objects, error) {
	t.Helper()
	loaded, err := Load(sidecarsDirectory)
	if err != nil {
		t.Fatal(err)
	}
	o.Release, o.Namespace = "release", "storage"
	documents, err := loaded.Render(o)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, d := range documents {
		texts = append(texts, d.YAML)
	}
	return decode(t, strings.Join(texts, "---\n")), nil
}

func renderSidecars(t *testing.T, values string) objects {
	t.Helper()
	all, err := sidecarsChart(t, Options{Values: values})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// containers are the driver's container and Holdfast's of a pod.
func containers(t *testing.T, spec corev1.PodSpec) (driver, own corev1.Container) {
	t.Helper()
	if len(spec.Containers) != 2 || spec.Containers[1].Name != "holdfast" {
		t.Fatalf("the containers are %+v", spec.Containers)
	}
	return spec.Containers[0], spec.Containers[1]
}

func TestSidecarsChart_oneProcessActsForTheCluster(t *testing.T) {
	all := renderSidecars(t, hostpath)
	deployment, set := one[*appsv1.Deployment](t, all), one[*appsv1.DaemonSet](t, all)
	driver, own := containers(t, deployment.Spec.Template.Spec)
	if driver.Name != "driver" || driver.Image != "hostpath:v1.18.0" || !slices.Equal(driver.Args, []string{"--endpoint=unix:///csi/csi.sock"}) ||
		driver.LivenessProbe.HTTPGet.Port.String() != "driver-health" || driver.VolumeMounts[0].MountPath != "/csi" {
		t.Errorf("the driver's container is %+v", driver)
	}
	given := flags(own.Args)
	for flag, want := range map[string]string{
		"csi-address": "/csi/csi.sock", "intents-namespace": "release-holdfast-sidecars-intents", "extra-create-metadata": "true",
		"attacher-timeout": "5m", "controllers": "", "node-deployment": "", "registration-dir": "",
	} {
		if given[flag] != want {
			t.Errorf("controller: --%s=%s, not %s", flag, given[flag], want)
		}
	}
	driver, own = containers(t, set.Spec.Template.Spec)
	given = flags(own.Args)
	if given["controllers"] != "none" || given["registration-dir"] != "/registration" ||
		given["kubelet-registration-path"] != "/var/lib/kubelet/plugins/hostpath.csi.k8s.io/csi.sock" || given["extra-create-metadata"] != "" {
		t.Errorf("node: the flags are %v", given)
	}
	if driver.Name != "hostpath" || !*driver.SecurityContext.Privileged || len(driver.VolumeMounts) != 2 ||
		hostPath(set.Spec.Template.Spec, "socket-dir") != "/var/lib/kubelet/plugins/hostpath.csi.k8s.io" || hostPath(set.Spec.Template.Spec, "pods") == "" {
		t.Errorf("node: the driver's container is %+v", driver)
	}
	if subjects := one[*rbacv1.ClusterRoleBinding](t, all).Subjects; subjects[0].Name != deployment.Spec.Template.Spec.ServiceAccountName {
		t.Errorf("the rights are those of %v", subjects)
	}
}

func TestSidecarsChart_eachNodeActsForItself(t *testing.T) {
	all := renderSidecars(t, strings.Replace(hostpath, "controller: {", "nodeDeployment: true\ncsiDriver: {create: true, spec: {attachRequired: false}}\ncontroller: {replicas: 1, ", 1))
	if len(of[*appsv1.Deployment](all)) > 0 {
		t.Error("there is a Deployment as well")
	}
	set := one[*appsv1.DaemonSet](t, all)
	_, own := containers(t, set.Spec.Template.Spec)
	given := flags(own.Args)
	if given["node-deployment"] != "true" || given["strict-topology"] != "true" || given["controllers"] != "" || given["extra-create-metadata"] != "true" ||
		given["intents-namespace"] == "" {
		t.Errorf("the flags are %v", given)
	}
	if subjects := one[*rbacv1.ClusterRoleBinding](t, all).Subjects; subjects[0].Name != set.Spec.Template.Spec.ServiceAccountName {
		t.Errorf("the rights are those of %v", subjects)
	}
	if *one[*storagev1.CSIDriver](t, all).Spec.AttachRequired {
		t.Error("attachRequired is not that of the values")
	}
}

func TestSidecarsChart_grantsTheRightsOfItsMode(t *testing.T) {
	for values, mode := range map[string]rights.Mode{hostpath: rights.Central, hostpath + "nodeDeployment: true\n": rights.Node} {
		all := renderSidecars(t, values)
		got := granted(t, rights.Everywhere, one[*rbacv1.ClusterRole](t, all).Rules)
		for _, role := range of[*rbacv1.Role](all) {
			for right := range granted(t, namespaceOf(role), role.Rules) {
				got[right] = true
			}
		}
		want := map[rights.Right]bool{}
		for _, right := range slices.Concat(rights.Of(mode, rights.Roles()...), rights.Optional()) {
			want[right] = true
			if !got[right] {
				t.Errorf("mode %v: %+v is not granted", mode, right)
			}
		}
		for right := range got {
			if !want[right] {
				t.Errorf("mode %v: %+v is granted", mode, right)
			}
		}
	}
	for _, file := range SidecarRules() {
		committed, err := os.ReadFile(filepath.Join(sidecarsDirectory, "files", file.Name))
		if err != nil || string(committed) != file.Text {
			t.Errorf("files/%s differs from the rights in code (%v); run make manifests", file.Name, err)
		}
	}
}

func TestSidecarsChart_rejectsWhatCannotWork(t *testing.T) {
	for values, want := range map[string]string{
		"":                  "driverName",
		"{driverName: a.b}": "controller.driver.image",
		"{driverName: a.b, nodeDeployment: true}":                                                           "node.driver.image",
		"{driverName: a.b, controller: {driver: {image: i}}, intents: {namespace: storage}}":                "intents.namespace",
		"{driverName: a.b, controller: {driver: {image: i}}, args: [extra]}":                                "args",
		"{driverName: a.b, controller: {driver: {image: i}}, kubeletDir: /" + strings.Repeat("k", 90) + "}": "107 bytes",
		"{driverName: a.b, controller: {driver: {image: i}}, unknown: true}":                                "unknown",
	} {
		if _, err := sidecarsChart(t, Options{Values: values}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", values, err, want)
		}
	}
}
