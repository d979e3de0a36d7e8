package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// controllerArguments are those of the container that runs the controllers, and
// whether it is one for the cluster.
func controllerArguments(t *testing.T, all objects) (arguments map[string]string, central bool) {
	t.Helper()
	if deployments := of[*appsv1.Deployment](all); len(deployments) == 1 && !coordinates(all) {
		return flags(deployments[0].Spec.Template.Spec.Containers[0].Args), true
	}
	return flags(linuxNode(t, all).Spec.Template.Spec.Containers[0].Args), false
}

// coordinates reports whether the Deployment is the coordinator of the nodes.
func coordinates(all objects) bool {
	return slices.ContainsFunc(of[*appsv1.Deployment](all), func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Args[0] == "coordinate"
	})
}

func linuxNode(t *testing.T, all objects) *appsv1.DaemonSet {
	t.Helper()
	for _, set := range of[*appsv1.DaemonSet](all) {
		if set.Spec.Template.Spec.NodeSelector["kubernetes.io/os"] == "linux" {
			return set
		}
	}
	t.Fatal("no DaemonSet for Linux nodes")
	return nil
}

// templates are the pods of all workloads with the selectors that look for them.
func templates(all objects) map[*corev1.PodTemplateSpec]*metav1.LabelSelector {
	found := map[*corev1.PodTemplateSpec]*metav1.LabelSelector{}
	for _, set := range of[*appsv1.DaemonSet](all) {
		found[&set.Spec.Template] = set.Spec.Selector
	}
	for _, deployment := range of[*appsv1.Deployment](all) {
		found[&deployment.Spec.Template] = deployment.Spec.Selector
	}
	return found
}

func TestInstallations_areOneContainerPerPod(t *testing.T) {
	for name, values := range installations() {
		for template := range templates(render(t, values)) {
			if n := len(template.Spec.Containers) + len(template.Spec.InitContainers); n != 1 {
				t.Errorf("%s: %d containers", name, n)
			}
		}
	}
}

func TestSelectors_findTheirPodsAndNoOthers(t *testing.T) {
	for name, values := range installations() {
		all := templates(render(t, values))
		for template, selector := range all {
			matcher, err := metav1.LabelSelectorAsSelector(selector)
			if err != nil {
				t.Fatal(err)
			}
			for other := range all {
				if got := matcher.Matches(labels.Set(other.Labels)); got != (other == template) {
					t.Errorf("%s: %v matches %v: %t", name, selector, other.Labels, got)
				}
			}
			for key := range template.Labels {
				if strings.Contains(key, "version") || strings.Contains(key, "chart") {
					t.Errorf("%s: the pod's label %s would restart it with every release", name, key)
				}
			}
		}
	}
}

func TestNode_isPrivilegedAndSharesItsMounts(t *testing.T) {
	for name, values := range installations() {
		spec := linuxNode(t, render(t, values)).Spec.Template.Spec
		container := spec.Containers[0]
		security := container.SecurityContext
		if !*security.Privileged || *security.RunAsUser != 0 || !*security.ReadOnlyRootFilesystem {
			t.Errorf("%s: security context %+v", name, security)
		}
		for _, mount := range container.VolumeMounts {
			if mount.Name != "kubelet" && mount.Name != "pool" {
				continue
			}
			if mount.MountPropagation == nil || *mount.MountPropagation != corev1.MountPropagationBidirectional {
				t.Errorf("%s: mounts below %s do not reach the node", name, mount.MountPath)
			}
			if path := hostPath(spec, mount.Name); path != mount.MountPath {
				t.Errorf("%s: %s of the node is %s in the container; the kubelet's names would not fit", name, path, mount.MountPath)
			}
		}
		if spec.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) || spec.PriorityClassName != "system-node-critical" {
			t.Errorf("%s: tolerations %v, priority %s", name, spec.Tolerations, spec.PriorityClassName)
		}
	}
}

func hostPath(spec corev1.PodSpec, name string) string {
	for _, volume := range spec.Volumes {
		if volume.Name == name && volume.HostPath != nil {
			return volume.HostPath.Path
		}
	}
	return ""
}

// TestPaths_ofTheSocketsFitTogether checks that /csi of the container is the directory
// that the kubelet gets at the registration, and that the pool is in a mounted directory.
func TestPaths_ofTheSocketsFitTogether(t *testing.T) {
	spec := linuxNode(t, render(t, "{kubeletDir: /data/kubelet, driverName: my.driver, local: {pool: {path: /srv/a/pool}}}")).Spec.Template.Spec
	given := flags(spec.Containers[0].Args)
	for name, want := range map[string]string{
		"endpoint": "unix:///csi/csi.sock", "registration-path": "/data/kubelet/plugins/my.driver/csi.sock",
		"registration-dir": "/registration", "kubelet-dir": "/data/kubelet", "driver-name": "my.driver", "pool": "/srv/a/pool",
	} {
		if given[name] != want {
			t.Errorf("--%s=%s; want %s", name, given[name], want)
		}
	}
	for name, want := range map[string]string{
		"plugin": "/data/kubelet/plugins/my.driver", "registration": "/data/kubelet/plugins_registry",
		"kubelet": "/data/kubelet", "devices": "/dev", "pool": "/srv/a",
	} {
		if got := hostPath(spec, name); got != want {
			t.Errorf("volume %s is %s; want %s", name, got, want)
		}
	}
}

func TestController_hasNoPrivilege(t *testing.T) {
	for _, values := range []string{"{backend: ebs}", withCoordinator} {
		all := render(t, values)
		deployment := one[*appsv1.Deployment](t, all)
		pod, container := deployment.Spec.Template.Spec.SecurityContext, deployment.Spec.Template.Spec.Containers[0].SecurityContext
		if !*pod.RunAsNonRoot || *pod.RunAsUser == 0 || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: pod: %+v", values, pod)
		}
		if container.Privileged != nil || *container.AllowPrivilegeEscalation || !*container.ReadOnlyRootFilesystem ||
			!slices.Equal(container.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: container: %+v", values, container)
		}
		for _, volume := range deployment.Spec.Template.Spec.Volumes {
			if volume.HostPath != nil {
				t.Errorf("%s: the controller has %s of its node", values, volume.HostPath.Path)
			}
		}
		if *deployment.Spec.Replicas != 2 || len(of[*policyv1.PodDisruptionBudget](all)) != 1 {
			t.Errorf("%s: %d replicas, %d budgets", values, *deployment.Spec.Replicas, len(of[*policyv1.PodDisruptionBudget](all)))
		}
	}
}

// TestCoordinator_listsTheIntentsOfTheNodes: those that no process completes are known to the
// process alone that coordinates the nodes.
func TestCoordinator_listsTheIntentsOfTheNodes(t *testing.T) {
	for _, values := range []string{
		withCoordinator, "{backend: local, local: {coordinator: {enabled: true}}, intents: {namespace: volumes}}",
		"{backend: local, local: {coordinator: {enabled: true}}, controllers: {provision: false, capacity: false}}",
	} {
		all := render(t, values)
		node := flags(linuxNode(t, all).Spec.Template.Spec.Containers[0].Args)["intents-namespace"]
		coordinator := flags(one[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0].Args)["intents-namespace"]
		if coordinator != node || (node == "") != strings.Contains(values, "provision: false") {
			t.Errorf("%s: the nodes have --intents-namespace=%s, the coordinator %s", values, node, coordinator)
		}
	}
}

// The nodes' processes are not elected next to a Deployment, and without one they are.
func TestCoordinator_isElectedAmongItsReplicasOnly(t *testing.T) {
	for values, want := range map[string]string{"{backend: local}": "", withCoordinator: "false"} {
		node := flags(linuxNode(t, render(t, values)).Spec.Template.Spec.Containers[0].Args)
		if node["leader-election"] != want || node["node-objects-only"] != "true" {
			t.Errorf("%s: the nodes have --leader-election=%s --node-objects-only=%s", values, node["leader-election"], node["node-objects-only"])
		}
	}
	container := one[*appsv1.Deployment](t, render(t, withCoordinator)).Spec.Template.Spec.Containers[0]
	if given := flags(container.Args); given["driver-name"] != "local.holdfast.dev" || given["cross-namespace-sources"] != "" {
		t.Errorf("the coordinator has %v", container.Args)
	}
	if got := refusal(t, "{local: {nodeObjectsOnly: false, coordinator: {enabled: true}}}"); !strings.Contains(got, "needs local.nodeObjectsOnly") {
		t.Errorf("a coordinator without node scope: %q", got)
	}
}

func TestBackends_decideWhoRunsTheControllers(t *testing.T) {
	local := render(t, "{backend: local}")
	node := linuxNode(t, local).Spec.Template.Spec
	if args := node.Containers[0].Args; args[1] != "all" || !slices.Contains(args, "--kubernetes") || !slices.Contains(args, "--node-id=$(NODE_NAME)") {
		t.Errorf("local: %v", args)
	}
	if strings.Contains(strings.Join(node.Containers[0].Args, " "), "attach") || len(of[*appsv1.Deployment](local)) != 0 {
		t.Error("local: there are attachments or a central controller")
	}
	ebs := render(t, "{backend: ebs}")
	node = linuxNode(t, ebs).Spec.Template.Spec
	if args := node.Containers[0].Args; args[1] != "node" || slices.Contains(args, "--kubernetes") {
		t.Errorf("ebs: %v", args)
	}
	controller := one[*appsv1.Deployment](t, ebs).Spec.Template.Spec.Containers[0].Args
	if given := flags(controller); controller[1] != "controller" || given["leader-election"] != "true" || !strings.Contains(given["controllers"], "attach") {
		t.Errorf("ebs: %v", controller)
	}
}

// A volume of one node is of use there only; a zone's is in its whole zone.
func TestTopology_isStrictWhereVolumesStayOnTheirNode(t *testing.T) {
	for values, want := range map[string]string{
		"{backend: local}": "true", "{backend: ebs}": "false",
		"{backend: local, controllers: {strictTopology: false}}": "false",
		"{backend: ebs, controllers: {strictTopology: true}}":    "true",
	} {
		arguments, _ := controllerArguments(t, render(t, values))
		if got := arguments["strict-topology"]; got != want {
			t.Errorf("%s: --strict-topology=%s; want %s", values, got, want)
		}
	}
}

// TestArguments_areFlagsOfTheProgram reads the declarations of flags: to build
// the program here would take its dependencies along.
func TestArguments_areFlagsOfTheProgram(t *testing.T) {
	program, proxy := flagsIn(t, "cli/*.go", "kube/*.go", "kube/lease/*.go"), flagsIn(t, "csiproxy/cli/*.go")
	for name, values := range installations() {
		for template := range templates(render(t, values)) {
			known, words := program, []string{"driver", "all", "controller", "node", "coordinate"}
			if template.Spec.Containers[0].Name == "csi-proxy" {
				known, words = proxy, []string{"run"}
			}
			for flag := range flags(template.Spec.Containers[0].Args) {
				if !known[flag] && !slices.Contains(words, flag) {
					t.Errorf("%s: %s has no flag --%s", name, template.Spec.Containers[0].Name, flag)
				}
			}
		}
	}
}

// flagsIn are the names in calls such as flags.StringVar(&f.pool, "pool", …) in
// files below internal.
func flagsIn(t *testing.T, patterns ...string) map[string]bool {
	t.Helper()
	declaration := regexp.MustCompile(`\b(?:flags|f)\.\w*Var\((?:\(\*\w+\)\()?&[\w.]+\)?, "([a-z0-9-]+)"`)
	known := map[string]bool{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("../../../internal", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range declaration.FindAllSubmatch(text, -1) {
				known[string(match[1])] = true
			}
		}
	}
	return known
}

// Only the controller gets the credentials; nodes get none.
func TestCredentials_areTheControllersAlone(t *testing.T) {
	all := render(t, everythingEBS)
	secret := func(spec corev1.PodSpec) (found []string) {
		for _, variable := range spec.Containers[0].Env {
			if from := variable.ValueFrom; from != nil && from.SecretKeyRef != nil {
				found = append(found, variable.Name+" "+from.SecretKeyRef.Name+" "+from.SecretKeyRef.Key)
			} else if strings.HasPrefix(variable.Name, "AWS_") {
				found = append(found, variable.Name+" "+variable.Value)
			}
		}
		return found
	}
	want := []string{"AWS_REGION eu-central-1", "AWS_ACCESS_KEY_ID aws-secret key_id", "AWS_SECRET_ACCESS_KEY aws-secret access_key"}
	if got := secret(one[*appsv1.Deployment](t, all).Spec.Template.Spec); !slices.Equal(got, want) {
		t.Errorf("the controller has %v; want %v", got, want)
	}
	for _, set := range of[*appsv1.DaemonSet](all) {
		if got := secret(set.Spec.Template.Spec); len(got) > 0 {
			t.Errorf("%s has %v", set.Name, got)
		}
	}
	if got := secret(one[*appsv1.Deployment](t, render(t, "{backend: ebs}")).Spec.Template.Spec); len(got) > 0 {
		t.Errorf("without values the controller has %v", got)
	}
}

func TestEBS_givesEachHalfItsFlags(t *testing.T) {
	all := render(t, everythingEBS)
	controller := flags(one[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0].Args)
	node := flags(linuxNode(t, all).Spec.Template.Spec.Containers[0].Args)
	for name, want := range map[string]string{
		"ec2-endpoint": "http://127.0.0.1:8080", "extra-tags": "claim={{ .PVCName }},team=storage", "extra-volume-tags": "kind=volume",
		"k8s-tag-cluster-id": "one", "warn-on-invalid-tag": "true", "strict-parameters": "true", "modify-volume-window": "1s",
	} {
		if controller[name] != want || node[name] != "" {
			t.Errorf("--%s: the controller has %q, the node %q; want %q for the controller", name, controller[name], node[name], want)
		}
	}
	for name, want := range map[string]string{
		"metadata-sources": "kubernetes", "reserved-volume-attachments": "2", "remove-startup-taint": "true", "legacy-xfs": "true",
		"sys-root": "/emulated/sys", "dev-root": "/emulated/dev",
	} {
		if node[name] != want || controller[name] != "" {
			t.Errorf("--%s: the node has %q, the controller %q; want %q for the node", name, node[name], controller[name], want)
		}
	}
	few := flags(linuxNode(t, render(t, "{backend: ebs, ebs: {volumeAttachLimit: 0}}")).Spec.Template.Spec.Containers[0].Args)
	if few["volume-attach-limit"] != "0" || few["reserved-volume-attachments"] != "" || few["sys-root"] != "" {
		t.Errorf("a limit of 0: %v", few)
	}
}

// The driver keeps running until its volumes are detached, and still has time to
// exit before the kubelet kills it.
func TestPreStop_endsBeforeThePodsGracePeriod(t *testing.T) {
	spec := linuxNode(t, render(t, everythingEBS)).Spec.Template.Spec
	command := spec.Containers[0].Lifecycle.PreStop.Exec.Command
	given := flags(command)
	if !slices.Equal(command[:2], []string{"/holdfast", "pre-stop"}) || given["driver-name"] != "ebs.csi.aws.com" || given["timeout"] != "48s" || *spec.TerminationGracePeriodSeconds != 60 {
		t.Errorf("%v of %d s", command, *spec.TerminationGracePeriodSeconds)
	}
	known := flagsIn(t, "cli/prestop.go")
	for flag := range flags(command[2:]) {
		if !known[flag] {
			t.Errorf("holdfast pre-stop has no flag --%s", flag)
		}
	}
	if linuxNode(t, render(t, "{backend: local}")).Spec.Template.Spec.Containers[0].Lifecycle != nil {
		t.Error("local volumes are not detached")
	}
}

func TestProbes_askTheMetricsPort(t *testing.T) {
	for template := range templates(render(t, "{backend: ebs, metricsPort: 1234, windows: {enabled: true}}")) {
		container := template.Spec.Containers[0]
		if container.Ports[0].Name != "metrics" || container.Ports[0].ContainerPort != 1234 || flags(container.Args)["metrics-address"] != ":1234" {
			t.Errorf("ports %v, arguments %v", container.Ports, container.Args)
		}
		for path, probe := range map[string]*corev1.Probe{
			"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe,
		} {
			if probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "metrics" {
				t.Errorf("%s: %+v", path, probe.HTTPGet)
			}
		}
	}
}

// On EKS the driver of ebs keeps off nodes that cannot have volumes or that have
// another driver; an affinity of the values replaces that.
func TestNode_keepsOffNodesWithoutEBSVolumes(t *testing.T) {
	const own = "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: own, operator: Exists}]}]}}}"
	for values, want := range map[string]string{
		"{backend: local}":                         "",
		"{backend: ebs, windows: {enabled: true}}": "eks.amazonaws.com/compute-type NotIn [fargate auto hybrid] sagemaker.amazonaws.com/compute-type NotIn [hyperpod]",
		"{backend: ebs, windows: {enabled: true}, node: {affinity: " + own + "}}": "own Exists []",
	} {
		for _, set := range of[*appsv1.DaemonSet](render(t, values)) {
			got := ""
			if affinity := set.Spec.Template.Spec.Affinity; affinity != nil {
				for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
					for _, e := range term.MatchExpressions {
						got += fmt.Sprintf("%s %s %v ", e.Key, e.Operator, e.Values)
					}
				}
			}
			if got = strings.TrimSpace(got); got != want {
				t.Errorf("%s: %s runs where %q; want %q", values, set.Name, got, want)
			}
		}
	}
}

// Each controller's settings become the flags of that controller.
func TestLimits_ofOneControllerAreItsFlags(t *testing.T) {
	for _, backend := range []string{"local", "ebs"} {
		given, _ := controllerArguments(t, render(t, "{backend: "+backend+", controllers: {limits: {provisioner: {timeout: 30s, workerThreads: 7}, "+
			"healthMonitor: {workerThreads: 3}, resizer: {retryIntervalStart: 2s, retryIntervalMax: 1m}}}}"))
		for flag, want := range map[string]string{
			"provisioner-timeout": "30s", "provisioner-worker-threads": "7", "health-monitor-worker-threads": "3",
			"resizer-retry-interval-start": "2s", "resizer-retry-interval-max": "1m",
		} {
			if given[flag] != want {
				t.Errorf("%s: --%s=%s, not %s", backend, flag, given[flag], want)
			}
		}
	}
}
