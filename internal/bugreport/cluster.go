package bugreport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/redact"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// API reads a cluster. Its errors are why.ErrNotFound for a kind that is not served, and
// why.ErrForbidden.
type API interface {
	why.Reader
	// Read reads a path, with a query.
	Read(ctx context.Context, path string, query url.Values) ([]byte, error)
}

// clusterKinds are the kinds of which all objects are in the report.
func clusterKinds() []why.Kind {
	return []why.Kind{
		"storage.k8s.io/v1/csidrivers/CSIDriver", "storage.k8s.io/v1/csinodes/CSINode", "storage.k8s.io/v1/storageclasses/StorageClass",
		"storage.k8s.io/v1/volumeattachments/VolumeAttachment", "storage.k8s.io/v1/volumeattributesclasses/VolumeAttributesClass",
		"storage.k8s.io/v1/csistoragecapacities/CSIStorageCapacity",
		"/v1/persistentvolumes/PersistentVolume", "/v1/persistentvolumeclaims/PersistentVolumeClaim",
		"snapshot.storage.k8s.io/v1/volumesnapshotclasses/VolumeSnapshotClass", "snapshot.storage.k8s.io/v1/volumesnapshots/VolumeSnapshot",
		"snapshot.storage.k8s.io/v1/volumesnapshotcontents/VolumeSnapshotContent",
		"groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotclasses/VolumeGroupSnapshotClass",
		"groupsnapshot.storage.k8s.io/v1/volumegroupsnapshots/VolumeGroupSnapshot",
		"groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents/VolumeGroupSnapshotContent",
	}
}

// The kinds of which the report has some objects.
const (
	podKind       why.Kind = "/v1/pods/Pod"
	eventKind     why.Kind = "/v1/events/Event"
	leaseKind     why.Kind = "coordination.k8s.io/v1/leases/Lease"
	configMapKind why.Kind = "/v1/configmaps/ConfigMap"
)

// intentsPrefix begins the names of the ConfigMaps with intents (kube/intent).
const intentsPrefix = "holdfast-intents-"

// tailLines is how many lines of a container's log are read.
const tailLines = "2000"

// Cluster are the sources of a cluster. It reads the driver's pods first, in one namespace
// or with "" in all: Leases, intents and logs are those of their namespaces.
func Cluster(ctx context.Context, api API, namespace string) []Source {
	c := clusterSources{api: api, namespace: namespace}
	within, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	c.pods, c.failed = c.ownPods(within)
	sources := []Source{
		{"cluster/version.json", "version of the API server", func(ctx context.Context) ([]byte, error) { return api.Read(ctx, "/version", nil) }},
		{"driver/pods.json", "the pods of Holdfast, without variables and commands", c.podObjects},
		{"driver/leases.json", "Leases in the namespaces of these pods", c.inNamespaces(leaseKind, func(map[string]any) bool { return true })},
		{"driver/intents.json", "intents: what the controllers are about to do", c.inNamespaces(configMapKind, isIntents)},
		{"objects/events.json", "events of storage, and of pods that concern volumes", c.events},
	}
	for _, kind := range clusterKinds() {
		name := strings.Split(string(kind), "/")[2]
		sources = append(sources, Source{"objects/" + name + ".json", "all " + name, func(ctx context.Context) ([]byte, error) {
			return c.list(ctx, kind, "", func(map[string]any) bool { return true })
		}})
	}
	return append(sources, c.logs()...)
}

// clusterSources read what the report has of a cluster.
type clusterSources struct {
	api       API
	namespace string
	pods      []corev1.Pod
	failed    error // why there are no pods
}

// errNoPods is of a cluster, or a namespace, without a pod of Holdfast.
var errNoPods = errors.New("no pod has a container of Holdfast")

// ownPods finds the pods of Holdfast by their label, or the image or command of a container.
func (c *clusterSources) ownPods(ctx context.Context) (own []corev1.Pod, err error) {
	items, err := c.api.List(ctx, podKind, c.namespace, "")
	if err != nil {
		if errors.Is(err, why.ErrForbidden) && c.namespace == "" {
			err = fmt.Errorf("%w; --namespace reads the pods of one namespace", err)
		}
		return nil, err
	}
	for _, item := range items {
		var pod corev1.Pod
		if err := json.Unmarshal(item, &pod); err != nil {
			return nil, err
		}
		if isOwn(&pod) {
			own = append(own, pod)
		}
	}
	if len(own) == 0 {
		return nil, errNoPods
	}
	return own, nil
}

func isOwn(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Labels["app.kubernetes.io/name"], "holdfast") ||
		slices.ContainsFunc(pod.Spec.Containers, runsHoldfast)
}

func runsHoldfast(container corev1.Container) bool {
	words := slices.Concat(container.Command, container.Args)
	return strings.Contains(path.Base(container.Image), "holdfast") || len(words) > 0 && path.Base(words[0]) == "holdfast"
}

// hasOwnLog reports whether a container of one of the pods is Holdfast's. Next to it can be
// another vendor's driver, whose lines may have anything. The chart holdfast has no others,
// whatever the name of its image in a registry.
func hasOwnLog(pod *corev1.Pod, container corev1.Container) bool {
	return pod.Labels["app.kubernetes.io/name"] == "holdfast" || runsHoldfast(container)
}

func (c *clusterSources) podObjects(context.Context) ([]byte, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	return encode(c.pods)
}

// list reads the objects of a kind that are kept, redacted.
func (c *clusterSources) list(ctx context.Context, kind why.Kind, namespace string, keep func(map[string]any) bool) ([]byte, error) {
	objects, err := c.objects(ctx, kind, namespace, keep)
	if err != nil {
		return nil, err
	}
	return encode(objects)
}

func (c *clusterSources) objects(
	ctx context.Context, kind why.Kind, namespace string, keep func(map[string]any) bool,
) (kept []map[string]any, err error) {
	items, err := c.api.List(ctx, kind, namespace, "")
	if errors.Is(err, why.ErrNotFound) {
		err = errors.New("the cluster does not serve this kind")
	}
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		var object map[string]any
		if err := json.Unmarshal(item, &object); err != nil {
			return nil, err
		}
		if metadata, ok := object["metadata"].(map[string]any); ok {
			delete(metadata, "managedFields")
		}
		if keep(object) {
			kept = append(kept, object)
		}
	}
	return kept, nil
}

// inNamespaces reads objects of the namespaces in which the pods are.
func (c *clusterSources) inNamespaces(kind why.Kind, keep func(map[string]any) bool) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		var all []map[string]any
		for _, namespace := range c.namespaces() {
			objects, err := c.objects(ctx, kind, namespace, keep)
			if err != nil {
				return nil, fmt.Errorf("namespace %s: %w", namespace, err)
			}
			all = append(all, objects...)
		}
		if all == nil && c.failed != nil {
			return nil, c.failed
		}
		return encode(all)
	}
}

func (c *clusterSources) namespaces() (all []string) {
	if c.namespace != "" {
		return []string{c.namespace}
	}
	for _, pod := range c.pods {
		all = append(all, pod.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// isIntents keeps a ConfigMap of intents, and moves its values to where they are not
// hidden as those of other ConfigMaps are: they are requests without their secrets.
func isIntents(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if !strings.HasPrefix(name, intentsPrefix) {
		return false
	}
	intents := map[string]any{}
	entries, _ := object["data"].(map[string]any)
	for key, value := range entries {
		text, _ := value.(string)
		var decoded any
		if json.Unmarshal([]byte(text), &decoded) != nil {
			decoded = redact.Hidden
		}
		intents[key] = decoded
	}
	delete(object, "data")
	object["intents"] = intents
	return true
}

// events are those of storage. Others may quote the output of users' programs.
func (c *clusterSources) events(ctx context.Context) ([]byte, error) {
	return c.list(ctx, eventKind, "", func(event map[string]any) bool {
		about, _ := event["involvedObject"].(map[string]any)
		kind, _ := about["kind"].(string)
		reason, _ := event["reason"].(string)
		switch kind {
		case "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment", "Lease", "Node":
			return true
		case "Pod":
			return strings.Contains(reason, "Mount") || strings.Contains(reason, "Attach") || strings.Contains(reason, "Volume") || reason == "FailedScheduling"
		}
		return strings.HasPrefix(kind, "VolumeSnapshot") || strings.HasPrefix(kind, "VolumeGroupSnapshot")
	})
}

// logs are the last lines of each of Holdfast's containers, and of the one before a restart.
func (c *clusterSources) logs() (sources []Source) {
	for i := range c.pods {
		pod := &c.pods[i]
		for _, container := range pod.Spec.Containers {
			if !hasOwnLog(pod, container) {
				continue
			}
			address := "/api/v1/namespaces/" + url.PathEscape(pod.Namespace) + "/pods/" + url.PathEscape(pod.Name) + "/log"
			query := url.Values{"container": {container.Name}, "tailLines": {tailLines}, "timestamps": {"true"}}
			name := path.Join("logs", pod.Namespace, pod.Name, container.Name)
			sources = append(sources, Source{name + ".txt", "the last lines of this container", c.log(address, query)})
			if restarted(pod, container.Name) {
				before := url.Values{"container": {container.Name}, "tailLines": {tailLines}, "timestamps": {"true"}, "previous": {"true"}}
				sources = append(sources, Source{name + ".previous.txt", "the last lines before its restart", c.log(address, before)})
			}
		}
	}
	slices.SortStableFunc(sources, func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
	return sources
}

func (c *clusterSources) log(address string, query url.Values) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return c.api.Read(ctx, address, query) }
}

func restarted(pod *corev1.Pod, container string) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
		return status.Name == container && status.RestartCount > 0
	})
}
