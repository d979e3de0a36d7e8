package chart

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// variables are the environment of a container by name.
func variables(container corev1.Container) map[string]string {
	all := map[string]string{}
	for _, v := range container.Env {
		all[v.Name] = v.Value
	}
	return all
}

func TestEBS_fipsAndProxy(t *testing.T) {
	all := render(t, `{backend: ebs, windows: {enabled: true}, ebs: {fips: true, proxy: {url: "http://proxy:3128", noProxy: ".svc,10.0.0.0/8"}}}`)
	controller := variables(one[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0])
	for name, want := range map[string]string{
		"AWS_USE_FIPS_ENDPOINT": "true", "GODEBUG": "fips140=on", "HTTP_PROXY": "http://proxy:3128", "HTTPS_PROXY": "http://proxy:3128",
		"NO_PROXY": ".svc,10.0.0.0/8",
	} {
		if controller[name] != want {
			t.Errorf("the controller has %s=%q, want %q", name, controller[name], want)
		}
	}
	for _, set := range of[*appsv1.DaemonSet](all) {
		if node := variables(set.Spec.Template.Spec.Containers[0]); node["GODEBUG"] != "fips140=on" || node["HTTP_PROXY"] != "" || node["AWS_USE_FIPS_ENDPOINT"] != "" {
			t.Errorf("%s has %v", set.Name, node)
		}
	}
	usual := variables(one[*appsv1.Deployment](t, render(t, "{backend: ebs}")).Spec.Template.Spec.Containers[0])
	for _, name := range []string{"AWS_USE_FIPS_ENDPOINT", "GODEBUG", "HTTP_PROXY", "NO_PROXY"} {
		if value, given := usual[name]; given {
			t.Errorf("without values the controller has %s=%q", name, value)
		}
	}
}

func TestPods_haveWhatTheirHalfAdds(t *testing.T) {
	const extras = `{extraEnvFrom: [{configMapRef: {name: settings}}], dnsConfig: {nameservers: [10.0.0.10]}, initContainers: [{name: wait, image: busybox}]`
	all := render(t, `{backend: ebs, node: `+extras+`}, controller: `+extras+
		`, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}, {maxSkew: 2, topologyKey: host, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}]}}`)
	deployment := one[*appsv1.Deployment](t, all)
	for name, spec := range map[string]corev1.PodSpec{"controller": deployment.Spec.Template.Spec, "node": linuxNode(t, all).Spec.Template.Spec} {
		if from := spec.Containers[0].EnvFrom; len(from) != 1 || from[0].ConfigMapRef.Name != "settings" {
			t.Errorf("the %s has envFrom %v", name, from)
		}
		if spec.DNSConfig == nil || !slices.Equal(spec.DNSConfig.Nameservers, []string{"10.0.0.10"}) {
			t.Errorf("the %s has dnsConfig %v", name, spec.DNSConfig)
		}
		if len(spec.InitContainers) != 1 || spec.InitContainers[0].Name != "wait" {
			t.Errorf("the %s has initContainers %v", name, spec.InitContainers)
		}
	}
	spread := deployment.Spec.Template.Spec.TopologySpreadConstraints
	if len(spread) != 2 || spread[0].LabelSelector.MatchLabels["app.kubernetes.io/component"] != "controller" ||
		len(spread[1].LabelSelector.MatchLabels) != 1 || spread[1].MaxSkew != 2 {
		t.Errorf("the controller is spread by %+v", spread)
	}
}

// A release without a controller is nodes of another one's driver.
func TestEBS_nodesAlone(t *testing.T) {
	all := render(t, `{backend: ebs, controller: {enabled: false}, csiDriver: {create: false}, storageClasses: [], node: {nodeSelector: {size: big}}, ebs: {volumeAttachLimit: 5}}`)
	if n := len(of[*appsv1.Deployment](all)) + len(of[*policyv1.PodDisruptionBudget](all)) + len(of[*corev1.Namespace](all)); n > 0 {
		t.Errorf("%d objects of a controller", n)
	}
	accounts := of[*corev1.ServiceAccount](all)
	if len(accounts) != 1 || accounts[0].Name != "release-holdfast-node" {
		t.Errorf("the accounts are %v", accounts)
	}
	for _, binding := range of[*rbacv1.ClusterRoleBinding](all) {
		if binding.Subjects[0].Name != "release-holdfast-node" {
			t.Errorf("%s binds %s", binding.Name, binding.Subjects[0].Name)
		}
	}
	given := flags(linuxNode(t, all).Spec.Template.Spec.Containers[0].Args)
	if given["volume-attach-limit"] != "5" {
		t.Errorf("the node has %v", given)
	}
}

// The controller prefers nodes that are instances of the cluster's own.
func TestEBS_controllerPrefersOwnInstances(t *testing.T) {
	affinity := one[*appsv1.Deployment](t, render(t, "{backend: ebs}")).Spec.Template.Spec.Affinity
	terms := affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if len(terms) != 1 || !slices.Equal(terms[0].Preference.MatchExpressions[0].Values, []string{"fargate", "auto", "hybrid"}) ||
		affinity.PodAntiAffinity == nil {
		t.Errorf("the affinity is %+v", affinity)
	}
}

func TestEBS_logsAndNamesItsRequests(t *testing.T) {
	all := render(t, "{backend: ebs, ebs: {sdkDebugLog: true, userAgentExtra: helm}}")
	given := flags(one[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0].Args)
	if given["aws-sdk-debug-log"] != "true" || given["user-agent-extra"] != "helm" {
		t.Errorf("the controller has %v", given)
	}
}
