package chart

import (
	"fmt"
	"strings"
	"testing"

	snapshotscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const directory = "../../helm/holdfast"

func load(t *testing.T) Chart {
	t.Helper()
	loaded, err := Load(directory)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// render returns the typed objects of an installation named "release" in the
// namespace "storage". A field that their types do not have is an error, as is
// one that is given twice.
func render(t *testing.T, values string, served ...string) objects {
	t.Helper()
	documents, err := load(t).Render(Options{Release: "release", Namespace: "storage", Values: values, Served: served})
	if err != nil {
		t.Fatalf("values %s: %v", values, err)
	}
	var texts []string
	for _, d := range documents {
		texts = append(texts, d.YAML)
	}
	return decode(t, strings.Join(texts, "---\n"))
}

// decode reads a file of manifests, strictly.
func decode(t *testing.T, file string) (all objects) {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, snapshotscheme.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(kinds, serializer.EnableStrict).UniversalDeserializer()
	for text := range strings.SplitSeq("\n"+file, "\n---\n") {
		if content, err := yaml.YAMLToJSON([]byte(text)); err == nil && string(content) == "null" {
			continue
		}
		object, _, err := decoder.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		all = append(all, object)
	}
	return all
}

// objects are the objects of an installation.
type objects []runtime.Object

// of are the objects of one type.
func of[T runtime.Object](all objects) (found []T) {
	for _, object := range all {
		if typed, ok := object.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// one is the only object of a type.
func one[T runtime.Object](t *testing.T, all objects) T {
	t.Helper()
	found := of[T](all)
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T; want one", len(found), *new(T))
	}
	return found[0]
}

// refusal is the error of values that are not to be accepted.
func refusal(t *testing.T, values string) string {
	t.Helper()
	_, err := load(t).Render(Options{Release: "release", Namespace: "storage", Values: values})
	if err == nil {
		return ""
	}
	return err.Error()
}

// withCoordinator has a Deployment that coordinates the nodes.
const withCoordinator = "{backend: local, local: {coordinator: {enabled: true}}}"

// everything turns all on that has a switch.
const (
	everythingLocal = `
backend: local
installSnapshotClasses: always
imagePullSecrets: [{name: pull}]
commonLabels: {team: storage}
podAnnotations: {prometheus.io/scrape: "true"}
controllers: {timeout: 30s, workerThreads: 50, retryIntervalStart: 2s, retryIntervalMax: 10m, strictTopology: true, crossNamespaceSources: true}
local:
  pool: {path: /srv/holdfast/pool, requireMount: true, image: {file: /srv/holdfast/pool.img, size: 10Gi}, overcommit: 1.5, reserve: 1Gi, adopt: true}
  inlineMaxSize: 1Gi
csiDriver: {seLinuxMount: true, preventPodSchedulingIfMissing: true, annotations: {a: b}}
rbac: {secrets: {cluster: true, namespaces: [one, two]}}
node:
  hostNetwork: true
  nodeSelector: {disk: ssd}
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: x, operator: Exists}]}]}}}
  extraArgs: [--capacity-poll-interval=10s]
  extraEnv: [{name: HTTP_PROXY, value: "http://proxy"}]
  serviceAccount: {annotations: {a: b}}
storageClasses:
  - {name: fast, default: true, parameters: {provisioning: thick}, reclaimPolicy: Retain, volumeBindingMode: Immediate, allowVolumeExpansion: false, mountOptions: [noatime], annotations: {a: b},
     allowedTopologies: [{matchLabelExpressions: [{key: topology.local.holdfast.dev/node, values: [one]}]}]}
volumeSnapshotClasses: [{name: keep, default: true, deletionPolicy: Retain, parameters: {a: b}, annotations: {a: b}}]
volumeGroupSnapshotClasses: [{name: group, default: true, deletionPolicy: Retain, parameters: {a: b}, annotations: {a: b}}]
volumeAttributesClasses: [{name: thick, parameters: {provisioning: thick}}]
`
	everythingEBS = `
backend: ebs
installSnapshotClasses: always
imagePullSecrets: [{name: pull}]
commonLabels: {team: storage}
podAnnotations: {prometheus.io/scrape: "true"}
controllers: {crossNamespaceSources: true}
ebs:
  region: eu-central-1
  endpoint: "http://127.0.0.1:8080"
  credentials: {secret: aws-secret}
  extraTags: {team: storage, claim: "{{ .PVCName }}"}
  extraVolumeTags: {kind: volume}
  clusterID: one
  warnOnInvalidTag: true
  strictParameters: true
  nodeLocalVolumes: true
  labelNodes: true
  modifyVolumeWindow: 1s
  metadataSources: [kubernetes]
  reservedVolumeAttachments: 2
  allocatableUpdatePeriodSeconds: 30
  legacyXFS: true
  sysRoot: /emulated/sys
  devRoot: /emulated/dev
node:
  terminationGracePeriodSeconds: 60
  extraVolumes: [{name: emulated, hostPath: {path: /run/ec2emu}}]
  extraVolumeMounts: [{name: emulated, mountPath: /emulated}]
windows: {enabled: true, nodeSelector: {a: b}, extraArgs: [--log-level=debug], csiProxy: {enabled: true, extraArgs: [--allow-sid=S-1-5-19]}}
controller:
  hostNetwork: true
  nodeSelector: {disk: ssd}
  affinity: {podAntiAffinity: {}}
  extraArgs: [--log-level=debug]
  extraEnv: [{name: HTTP_PROXY, value: "http://proxy"}]
  extraVolumes: [{name: trust, configMap: {name: trust}}]
  extraVolumeMounts: [{name: trust, mountPath: /etc/ssl/certs}]
`
)

// installations are values whose rendering the tests look at as a whole.
func installations() map[string]string {
	all := map[string]string{
		"local": "{backend: local}", "local, all given": everythingLocal, "ebs": "{backend: ebs}", "ebs, all given": everythingEBS,
		"local, with a coordinator":            withCoordinator,
		"local, with a coordinator, all given": strings.Replace(everythingLocal, "local:\n", "local:\n  coordinator: {enabled: true}\n", 1),
		"ebs, HostProcess":                     "{backend: ebs, windows: {enabled: true, hostProcess: true}}",
	}
	for _, off := range []string{
		"removeStartupTaint: false", "waitForDetach: false", "metadataSources: [imds]", "nodePolicy: false",
		"removeStartupTaint: false, waitForDetach: false, metadataSources: [imds]", "metadataSources: [metadata-labeler], labelNodes: true",
	} {
		all["ebs, "+off] = fmt.Sprintf("{backend: ebs, ebs: {%s}}", off)
	}
	for _, backend := range []string{"local", "ebs"} {
		for _, off := range []string{
			"provision: false, capacity: false", "resize: false", "snapshot: false, groupSnapshot: false", "groupSnapshot: false",
			"health: false", "capacity: false", "provision: false, capacity: false, resize: false, snapshot: false, groupSnapshot: false, health: false",
		} {
			all[fmt.Sprintf("%s, %s", backend, off)] = fmt.Sprintf("{backend: %s, controllers: {%s}}", backend, off)
		}
	}
	return all
}

// flags are the container's arguments by name; one without a value has "true".
func flags(arguments []string) map[string]string {
	given := map[string]string{}
	for _, argument := range arguments {
		name, value, valued := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		if !valued {
			value = "true"
		}
		given[name] = value
	}
	return given
}
