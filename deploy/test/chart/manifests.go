package chart

import (
	"fmt"
	"slices"
	"strings"
)

// Manifest is a file of plain manifests made from the chart.
type Manifest struct {
	Name string // of the file
	Text string
}

const (
	manifestNamespace = "holdfast-system"
	manifestHead      = `# Made from deploy/helm/holdfast by "make manifests": change the chart, not this.
`
)

// namespace is a file's first object. The driver's containers are privileged,
// which the level says (Pod Security Standards).
const namespace = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + manifestNamespace + `
  labels:
    pod-security.kubernetes.io/enforce: privileged
    pod-security.kubernetes.io/audit: privileged
    pod-security.kubernetes.io/warn: privileged
`

// Manifests are all files, for those without Helm. The classes of snapshots
// stand apart: a cluster without their CRDs refuses them.
func (c Chart) Manifests() ([]Manifest, error) {
	documents, err := c.Render(Options{
		Release: "holdfast", Namespace: manifestNamespace, Values: "{backend: local, installSnapshotClasses: always}",
		Served: []string{mutatingPolicies},
	})
	if err != nil {
		return nil, err
	}
	// In a file of its own: older API servers refuse it, and the rest works without it.
	documents = slices.DeleteFunc(documents, func(d Document) bool { return strings.HasPrefix(d.Name, nodeLabel) })
	policies, err := c.policies()
	if err != nil {
		return nil, err
	}
	windows, err := c.windows()
	if err != nil {
		return nil, err
	}
	isSnapshot := func(d Document) bool { return strings.Contains(d.Kind, "Snapshot") }
	return slices.Concat([]Manifest{
		{Name: "local.yaml", Text: join("# The backend local, without Helm: kubectl apply -f local.yaml\n",
			append([]Document{{YAML: namespace}}, slices.DeleteFunc(slices.Clone(documents), isSnapshot)...))},
		{Name: "local-snapshot-classes.yaml", Text: join("# For clusters with the CRDs of snapshots and group snapshots.\n",
			slices.DeleteFunc(documents, func(d Document) bool { return !isSnapshot(d) }))},
		sidecarRoles(),
	}, policies, windows), nil
}

// nodeLabel begins the names of the policies in local-node-label.yaml.
const nodeLabel = "holdfast-node-label"

// mutatingPolicies is the kind that the API server has to serve for the label of claims.
const mutatingPolicies = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

// policies are the rules of admission, one file each.
func (c Chart) policies() (manifests []Manifest, err error) {
	for _, file := range []struct{ name, what, values, only string }{
		{"local-node-label.yaml", "# Labels claims and PersistentVolumes when they are written, for local.yaml (Kubernetes 1.36 and later).\n",
			"{backend: local}", nodeLabel},
		{"ebs-label-nodes.yaml", "# What the controller of the backend ebs may change of Nodes with --label-nodes (Kubernetes 1.30 and later).\n",
			"{backend: ebs, ebs: {labelNodes: true}}", "holdfast-controller-nodes"},
		{"pipe-policy.yaml", "# Who may have the pipes of csi-proxy (Kubernetes 1.30 and later). Allow accounts where it says \"in []\".\n",
			"{pipePolicy: {kind: policy}}", "holdfast-pipe"},
		{"pipe-webhook.yaml", "# The same as a webhook. Add its namespace, --allow arguments, the secret holdfast-pipe and its caBundle.\n",
			"{pipePolicy: {kind: webhook, webhook: {secretName: holdfast-pipe}}}", "holdfast-pipe"},
		{"inline-policy.yaml", "# Which CSI volumes pods may have inline (Kubernetes 1.30 and later). The variables \"default\" are for namespaces that say nothing.\n",
			"{inlinePolicy: {kind: policy}}", "holdfast-inline"},
		{"inline-read-only.yaml", "# Makes inline volumes of drivers that ask for it read-only (Kubernetes 1.36 and later).\n",
			"{inlinePolicy: {kind: policy, setReadOnly: true}}", "holdfast-inline-read-only"},
		{"inline-webhook.yaml", "# The rules of inline-policy.yaml as a webhook. Add its namespace, the secret holdfast-inline and its caBundle.\n",
			"{inlinePolicy: {kind: webhook, webhook: {secretName: holdfast-inline}}}", "holdfast-inline"},
	} {
		documents, err := c.Render(Options{
			Release: "holdfast", Namespace: manifestNamespace, Values: file.values, Served: []string{mutatingPolicies},
		})
		if err != nil {
			return nil, err
		}
		documents = slices.DeleteFunc(documents, func(d Document) bool { return !strings.HasPrefix(d.Name, file.only) })
		manifests = append(manifests, Manifest{Name: file.name, Text: join(file.what, documents)})
	}
	return manifests, nil
}

// windows are the files for clusters with Windows nodes: the backend ebs with its
// controller and the nodes of both systems, in each form, and csi-proxy.
func (c Chart) windows() (manifests []Manifest, err error) {
	for _, file := range []struct{ name, what, values, only string }{
		{"ebs-windows.yaml", "# The backend ebs on Linux and Windows nodes, which have csi-proxy, without Helm.\n", "{backend: ebs, installSnapshotClasses: never, windows: {enabled: true}}", ""},
		{"ebs-windows-hostprocess.yaml", "# The same with HostProcess containers on Windows nodes, which need no csi-proxy.\n", "{backend: ebs, installSnapshotClasses: never, windows: {enabled: true, hostProcess: true}}", ""},
		{"csi-proxy.yaml", "# csi-proxy as a HostProcess container, if it is not a service of the nodes.\n", "{backend: ebs, windows: {csiProxy: {enabled: true}}}", "holdfast-csi-proxy"},
	} {
		documents, err := c.Render(Options{Release: "holdfast", Namespace: manifestNamespace, Values: file.values})
		if err != nil {
			return nil, err
		}
		documents = slices.DeleteFunc(documents, func(d Document) bool { return file.only != "" && d.Name != file.only })
		manifests = append(manifests, Manifest{Name: file.name, Text: join(file.what, append([]Document{{YAML: namespace}}, documents...))})
	}
	return manifests, nil
}

func join(what string, documents []Document) string {
	parts := make([]string, len(documents))
	for i, d := range documents {
		parts[i] = withoutHelm(d.YAML)
	}
	return fmt.Sprintf("%s%s---\n%s", manifestHead, what, strings.Join(parts, "---\n"))
}

// withoutHelm drops the labels that would have helm take the objects for its own.
func withoutHelm(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		label := strings.TrimSpace(line)
		if strings.HasPrefix(label, "helm.sh/") || label == "app.kubernetes.io/managed-by: Helm" {
			continue
		}
		kept.WriteString(line)
	}
	return kept.String()
}
