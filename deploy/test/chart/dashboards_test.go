package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const watched = `backend: ebs
monitoring:
  rules: {enabled: true, labels: {release: prometheus}, annotations: {a: b}}
  dashboards: {enabled: true, namespace: grafana, annotations: {grafana_folder: Storage}}
`

// withoutKind renders values and returns the documents of a kind, and the other objects.
func withoutKind(t *testing.T, values, kind string) (found []Document, rest objects) {
	t.Helper()
	documents, err := load(t).Render(Options{Release: "release", Namespace: "storage", Values: values})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, d := range documents {
		if d.Kind == kind {
			found = append(found, d)
		} else {
			texts = append(texts, d.YAML)
		}
	}
	return found, decode(t, strings.Join(texts, "---\n"))
}

func TestMonitoring_theRulesAreThoseOfTheFile(t *testing.T) {
	found, _ := withoutKind(t, watched, "PrometheusRule")
	if len(found) != 1 {
		t.Fatalf("%d PrometheusRules", len(found))
	}
	var rule struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Spec       map[string]any    `json:"spec"`
	}
	if err := yaml.UnmarshalStrict([]byte(found[0].YAML), &rule); err != nil {
		t.Fatal(err)
	}
	if rule.APIVersion != "monitoring.coreos.com/v1" || rule.Metadata.Name != "release-holdfast" || rule.Metadata.Namespace != "storage" ||
		rule.Metadata.Labels["release"] != "prometheus" || rule.Metadata.Annotations["a"] != "b" {
		t.Errorf("the PrometheusRule is %+v", rule.Metadata)
	}
	file, err := os.ReadFile(filepath.Join("../../helm/holdfast/files/monitoring/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(file, &want); err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(rule.Spec)
	expected, _ := json.Marshal(want)
	if string(got) != string(expected) {
		t.Errorf("the rules of the chart are\n%s\nthose of the file\n%s", got, expected)
	}
}

func TestMonitoring_theDashboardsAreThoseOfTheFiles(t *testing.T) {
	_, all := withoutKind(t, watched, "PrometheusRule")
	got, want := map[string]string{}, map[string]string{}
	for _, c := range of[*corev1.ConfigMap](all) {
		if c.Labels["grafana_dashboard"] != "1" {
			continue
		}
		if c.Namespace != "grafana" || c.Annotations["grafana_folder"] != "Storage" || !strings.HasPrefix(c.Name, "release-holdfast-") || len(c.Data) != 1 {
			t.Errorf("the ConfigMap of a dashboard is %+v with %d entries", c.ObjectMeta, len(c.Data))
		}
		for name, text := range c.Data {
			got[name] = compact(t, []byte(text))
		}
	}
	files, err := filepath.Glob("../../helm/holdfast/files/monitoring/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("files: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want[filepath.Base(file)] = compact(t, text)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the chart has other dashboards than the files: %d of %d are equal", len(got), len(want))
	}
}

// compact is JSON with sorted keys and without spaces.
func compact(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	sorted, _ := json.Marshal(value)
	return string(sorted)
}

func TestMonitoring_isOffUnlessItIsSwitchedOn(t *testing.T) {
	for name, values := range whole("log: {level: info}") {
		rules, all := withoutKind(t, values, "PrometheusRule")
		if len(rules) != 0 {
			t.Errorf("%s: there is a PrometheusRule", name)
		}
		for _, c := range of[*corev1.ConfigMap](all) {
			if strings.HasSuffix(c.Name, "-dashboard") {
				t.Errorf("%s: there is the dashboard %s", name, c.Name)
			}
		}
	}
}

// A claim's namespace must not become exported_namespace, and a node is named by its
// name.
func TestMonitoring_thePodMonitorKeepsTheLabelsOfClaims(t *testing.T) {
	monitor, _ := renderMonitor(t, "{monitoring: {podMonitor: {enabled: true}}}")
	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	if !endpoint.HonorLabels || len(endpoint.Relabelings) != 1 || endpoint.Relabelings[0].TargetLabel != "instance" ||
		endpoint.Relabelings[0].SourceLabels[0] != "__meta_kubernetes_pod_node_name" {
		t.Errorf("the endpoint is %+v", endpoint)
	}
}
