package chart

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// shared are kinds whose names are the user's or the driver's. Helm refuses a second
// release that has one of them.
var shared = []string{
	"CSIDriver", "StorageClass", "VolumeAttributesClass", "VolumeSnapshotClass", "VolumeGroupSnapshotClass",
	"Namespace", // of intents, which outlive a release: its name must not change
}

// clusterWide are the objects of an installation that have no namespace, "Kind name".
func clusterWide(t *testing.T, o Options) (names []string) {
	t.Helper()
	documents, err := load(t).Render(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		var head struct {
			Metadata struct{ Namespace string } `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(d.YAML), &head); err != nil {
			t.Fatal(err)
		}
		if head.Metadata.Namespace == "" && !slices.Contains(shared, d.Kind) {
			names = append(names, d.Kind+" "+d.Name)
		}
	}
	return names
}

// Two releases have no object of the cluster in common, neither by their names nor by
// their namespaces.
func TestNames_ofTwoReleasesDiffer(t *testing.T) {
	all := installations()
	for name, values := range whole("inlinePolicy: {kind: policy, setReadOnly: true}") {
		all["policies "+name] = strings.Replace(values, "inlinePolicy: {kind: webhook, webhook: {secretName: inline}}, pipePolicy: {kind: webhook, webhook: {secretName: pipe}}, ",
			"pipePolicy: {kind: policy}, ", 1)
	}
	for name, values := range whole("log: {level: info}") {
		all["webhooks "+name] = values
	}
	for name, values := range all {
		seen := map[string]Options{}
		for _, o := range []Options{
			{Release: "holdfast", Namespace: "one"}, {Release: "holdfast", Namespace: "two"}, {Release: "second", Namespace: "one"},
			{Release: "holdfast-x", Namespace: "y"}, {Release: "holdfast", Namespace: "x-y"},
		} {
			o.Values, o.Served = values, []string{mutatingPolicies}
			for _, object := range clusterWide(t, o) {
				if other, ok := seen[object]; ok {
					t.Errorf("%s: %s is of release %s in %s and of %s in %s", name, object, other.Release, other.Namespace, o.Release, o.Namespace)
				}
				seen[object] = o
			}
		}
	}
}
