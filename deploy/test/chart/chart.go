// Package chart renders the chart of deploy/helm as helm does, without a
// cluster: for its tests, and for the plain manifests made from it.
package chart

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// Options are the options of an installation.
type Options struct {
	Release, Namespace string
	// Values is YAML, as in a file for helm's -f.
	Values string
	// Served are API versions and kinds of the cluster, such as
	// snapshot.storage.k8s.io/v1/VolumeSnapshotClass.
	Served []string
}

// Document is one rendered object.
type Document struct {
	Template string // file name of its template
	Kind     string
	Name     string
	YAML     string
}

// Chart is a chart as loaded from a directory.
type Chart struct{ chart *chartv2.Chart }

// Load reads a chart.
func Load(directory string) (Chart, error) {
	loaded, err := loader.LoadDir(directory)
	return Chart{chart: loaded}, err
}

// Version is the chart's version.
func (c Chart) Version() string { return c.chart.Metadata.Version }

// AppVersion is the version of the installed program.
func (c Chart) AppVersion() string { return c.chart.Metadata.AppVersion }

// Render returns the objects in the order in which they are to be created. The
// error of values that the schema refuses names each of them.
func (c Chart) Render(o Options) ([]Document, error) {
	files, err := c.files(o)
	if err != nil {
		return nil, err
	}
	var documents []Document
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		for text := range strings.SplitSeq(files[name], "\n---\n") {
			document, err := identify(path.Base(name), text)
			if err != nil {
				return nil, err
			}
			if document.Kind != "" {
				documents = append(documents, document)
			}
		}
	}
	slices.SortStableFunc(documents, func(a, b Document) int { return order(a.Kind) - order(b.Kind) })
	return documents, nil
}

// Notes renders what helm prints after an installation.
func (c Chart) Notes(o Options) (string, error) {
	files, err := c.files(o)
	return files[path.Join(c.chart.Name(), "templates/NOTES.txt")], err
}

func (c Chart) files(o Options) (map[string]string, error) {
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(o.Values), &values); err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), o.Served...)
	complete, err := util.ToRenderValues(c.chart, values, common.ReleaseOptions{
		Name: o.Release, Namespace: o.Namespace, Revision: 1, IsInstall: true,
	}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c.chart, complete)
}

func identify(template, text string) (Document, error) {
	var head struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		return Document{}, fmt.Errorf("%s: %w", template, err)
	}
	text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "---")) + "\n"
	return Document{Template: template, Kind: head.Kind, Name: head.Metadata.Name, YAML: text}, nil
}

// order puts what others refer to before them.
func order(kind string) int {
	kinds := []string{
		"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "CSIDriver",
		"StorageClass", "VolumeAttributesClass", "VolumeSnapshotClass", "VolumeGroupSnapshotClass",
		"PodDisruptionBudget", "Deployment", "DaemonSet",
	}
	if i := slices.Index(kinds, kind); i >= 0 {
		return i
	}
	return len(kinds)
}
