package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// whole are installations with every kind of pod of the chart.
func whole(more string) map[string]string {
	return map[string]string{
		"local": "{backend: local, " + more + "}",
		"ebs": "{backend: ebs, windows: {enabled: true, csiProxy: {enabled: true}}, inlinePolicy: {kind: webhook, webhook: {secretName: inline}}, " +
			"pipePolicy: {kind: webhook, webhook: {secretName: pipe}}, " + more + "}",
	}
}

func component(template *corev1.PodTemplateSpec) string {
	return template.Labels["app.kubernetes.io/component"]
}

// metricsPort is the number of the port that is named metrics, 0 if there is none.
func metricsPort(template *corev1.PodTemplateSpec) int32 {
	for _, port := range template.Spec.Containers[0].Ports {
		if port.Name == "metrics" {
			return port.ContainerPort
		}
	}
	return 0
}

func TestMonitoring_theServiceHasEveryPodWithMetrics(t *testing.T) {
	for name, values := range whole("metricsPort: 9900, monitoring: {service: {enabled: true, labels: {team: a}, annotations: {b: c}}}") {
		all := render(t, values)
		var service *corev1.Service
		for _, s := range of[*corev1.Service](all) {
			if s.Name == "release-holdfast-metrics" {
				service = s
			}
		}
		if service == nil {
			t.Fatalf("%s: no Service of metrics", name)
		}
		if service.Spec.ClusterIP != corev1.ClusterIPNone || !service.Spec.PublishNotReadyAddresses || service.Spec.Ports[0].TargetPort.String() != "metrics" ||
			service.Labels["team"] != "a" || service.Annotations["b"] != "c" {
			t.Errorf("%s: the Service is %+v", name, service)
		}
		for template := range templates(all) {
			if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(template.Labels)) {
				t.Errorf("%s: the pods of %s have no endpoint", name, component(template))
			}
		}
	}
	for name, values := range whole("log: {level: info}") {
		for _, s := range of[*corev1.Service](render(t, values)) {
			if strings.HasSuffix(s.Name, "-metrics") {
				t.Errorf("%s: there is a Service that is not switched on", name)
			}
		}
	}
}

// podMonitor is as much of the Prometheus operator's PodMonitor as the chart sets.
type podMonitor struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port, Path, Scheme, Interval string
			TLSConfig                    map[string]any `json:"tlsConfig"`
			HonorLabels                  bool           `json:"honorLabels"`
			Relabelings                  []struct {
				SourceLabels []string `json:"sourceLabels"`
				TargetLabel  string   `json:"targetLabel"`
			} `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// renderMonitor returns the PodMonitor of an installation, and the other objects.
func renderMonitor(t *testing.T, values string) (monitor podMonitor, rest objects) {
	t.Helper()
	documents, err := load(t).Render(Options{Release: "release", Namespace: "storage", Values: values})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, d := range documents {
		if d.Kind != "PodMonitor" {
			texts = append(texts, d.YAML)
		} else if err := yaml.UnmarshalStrict([]byte(d.YAML), &monitor); err != nil {
			t.Fatal(err)
		}
	}
	return monitor, decode(t, strings.Join(texts, "---\n"))
}

func TestMonitoring_thePodMonitorScrapesWhatServesMetrics(t *testing.T) {
	for more, want := range map[string]string{
		"monitoring: {podMonitor: {enabled: true, interval: 15s, labels: {release: prometheus}}}":                                                 "http",
		"metricsSecret: tls, monitoring: {podMonitor: {enabled: true, interval: 15s, labels: {release: prometheus}, tlsConfig: {serverName: a}}}": "https",
	} {
		for name, values := range whole(more) {
			monitor, all := renderMonitor(t, values)
			endpoint := monitor.Spec.PodMetricsEndpoints[0]
			if monitor.APIVersion != "monitoring.coreos.com/v1" || monitor.Metadata.Labels["release"] != "prometheus" || endpoint.Port != "metrics" ||
				endpoint.Path != "/metrics" || endpoint.Interval != "15s" || endpoint.Scheme != want || (endpoint.TLSConfig["serverName"] == "a") != (want == "https") {
				t.Errorf("%s: the PodMonitor is %+v", name, monitor)
			}
			selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			for template := range templates(all) {
				scraped := selector.Matches(labels.Set(template.Labels)) && metricsPort(template) != 0
				serves := metricsPort(template) != 0 && (want == "http" || component(template) != "csi-proxy")
				if scraped != serves {
					t.Errorf("%s: pods of %s are scraped by %s: %t", name, component(template), want, scraped)
				}
			}
		}
	}
}

func TestNetworkPolicy_opensThePagesAlone(t *testing.T) {
	for name, values := range whole("networkPolicy: {enabled: true}") {
		all := render(t, values)
		policy := one[*networkingv1.NetworkPolicy](t, all)
		if rules := policy.Spec.Ingress; len(rules) != 1 || len(rules[0].From) != 0 || len(rules[0].Ports) != 1 || rules[0].Ports[0].Port.String() != "metrics" ||
			!slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
			t.Errorf("%s: the policy is %+v", name, policy.Spec)
		}
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		selected := map[string]bool{}
		for template := range templates(all) {
			if selector.Matches(labels.Set(template.Labels)) {
				selected[component(template)] = metricsPort(template) != 0
			}
		}
		want := map[string]bool{"node": true}
		if name == "ebs" {
			want = map[string]bool{"node": true, "node-windows": true, "controller": true}
		}
		if !maps.Equal(selected, want) {
			t.Errorf("%s: the policy selects pods of %v, want %v", name, selected, want)
		}
	}
	policy := one[*networkingv1.NetworkPolicy](t, render(t, "{networkPolicy: {enabled: true, from: [{namespaceSelector: {}}], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}}"))
	if len(policy.Spec.Ingress[0].From) != 1 || len(policy.Spec.Egress) != 1 || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		t.Errorf("the policy is %+v", policy.Spec)
	}
}

func TestImage_ofADigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	all := render(t, "{backend: ebs, image: {tag: v1, digest: '"+digest+"'}, windows: {enabled: true, image: {digest: '"+digest+"'}}}")
	for template := range templates(all) {
		if image := template.Spec.Containers[0].Image; !strings.HasSuffix(image, "@"+digest) {
			t.Errorf("the image of %s is %s", component(template), image)
		}
	}
	if text := refusal(t, "{image: {digest: latest}}"); !strings.Contains(text, "digest") {
		t.Errorf("a digest that is none is accepted: %q", text)
	}
}

func TestRollout_waitsForPodsThatStayReady(t *testing.T) {
	all := render(t, "{backend: ebs, node: {minReadySeconds: 7}, controller: {minReadySeconds: 8}, windows: {enabled: true}}")
	for _, set := range of[*appsv1.DaemonSet](all) {
		if set.Spec.MinReadySeconds != 7 {
			t.Errorf("%s: %d s", set.Name, set.Spec.MinReadySeconds)
		}
	}
	if got := one[*appsv1.Deployment](t, all).Spec.MinReadySeconds; got != 8 {
		t.Errorf("controller: %d s", got)
	}
}

func TestController_isSpreadOverZones(t *testing.T) {
	deployment := one[*appsv1.Deployment](t, render(t, "{backend: ebs}"))
	spread := deployment.Spec.Template.Spec.TopologySpreadConstraints
	if len(spread) != 1 || spread[0].TopologyKey != corev1.LabelTopologyZone || spread[0].WhenUnsatisfiable != corev1.ScheduleAnyway ||
		!maps.Equal(spread[0].LabelSelector.MatchLabels, deployment.Spec.Selector.MatchLabels) {
		t.Errorf("the constraints are %+v", spread)
	}
	deployment = one[*appsv1.Deployment](t, render(t, "{backend: ebs, controller: {topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}}"))
	if spread := deployment.Spec.Template.Spec.TopologySpreadConstraints; len(spread) != 1 || spread[0].TopologyKey != "rack" {
		t.Errorf("the constraints are %+v, not those of the values", spread)
	}
}
