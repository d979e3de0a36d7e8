package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/claim/grant"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

const (
	syncPoll    = 20 * time.Millisecond
	slowestPoll = 2 * time.Second
	servePoll   = time.Minute
)

// Set is the set of caches that all controllers of a process share. A kind that no
// controller requests is neither listed nor watched.
type Set struct {
	clients   Clients
	namespace string
	driver    string
	logger    *slog.Logger
	servePoll time.Duration
	node      string // whose objects are watched; "" for those of all nodes

	mu         sync.Mutex
	suppressed bool
	stores     map[schema.GroupVersionResource]store
	// older are versions of kinds for clusters that do not serve the store's own.
	older map[schema.GroupVersionResource]olderVersion
	// absent are optional kinds that the cluster did not serve when that was last read.
	absent map[schema.GroupVersionResource]bool
}

// store is a Store of any kind.
type store interface {
	start(ctx context.Context, suppressed bool)
	notify()
	forget()
	HasSynced() bool
}

// NewSet makes an empty set. The namespace is where CSIStorageCapacity objects live.
func NewSet(clients Clients, driver, namespace string, logger *slog.Logger) *Set {
	return &Set{
		clients: clients, driver: driver, namespace: namespace, logger: logger,
		servePoll: servePoll, stores: map[schema.GroupVersionResource]store{},
		older: map[schema.GroupVersionResource]olderVersion{}, absent: map[schema.GroupVersionResource]bool{},
	}
}

// OnlyNode restricts the kinds whose number grows with the volumes of the cluster to
// objects that concern one node: claims and PersistentVolumes with claim.NodeLabel,
// contents with claim.ManagedByLabel, and the node's own Node and CSINode. It must be
// called before any store is requested.
func (s *Set) OnlyNode(node string) { s.node = node }

// labelled selects the objects that a label assigns to the set's node, or to any node.
func (s *Set) labelled(label string) chosen {
	if s.node == "" {
		return chosen{}
	}
	return chosen{labels: claim.NodeSelector(label, s.node)}
}

// named selects the object with the name of the set's node.
func (s *Set) named() chosen {
	if s.node == "" {
		return chosen{}
	}
	return chosen{fields: "metadata.name=" + s.node}
}

// kept returns the store of a resource; it makes the store on the first call.
func kept[T Object](s *Set, resource schema.GroupVersionResource, make func() *Store[T]) *Store[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.stores[resource].(*Store[T]); ok {
		return known
	}
	made := make()
	s.stores[resource] = made
	return made
}

// Claims are the PersistentVolumeClaims.
func (s *Set) Claims() *Store[*corev1.PersistentVolumeClaim] {
	return kept(s, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), func() *Store[*corev1.PersistentVolumeClaim] {
		return newStore("PersistentVolumeClaim", &corev1.PersistentVolumeClaim{}, s.clients.Core,
			s.clients.Core.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll), s.labelled(claim.NodeLabel), s.logger)
	})
}

// Volumes are the PersistentVolumes.
func (s *Set) Volumes() *Store[*corev1.PersistentVolume] {
	return kept(s, corev1.SchemeGroupVersion.WithResource("persistentvolumes"), func() *Store[*corev1.PersistentVolume] {
		return newStore("PersistentVolume", &corev1.PersistentVolume{}, s.clients.Core,
			s.clients.Core.CoreV1().PersistentVolumes(), s.labelled(claim.NodeLabel), s.logger)
	})
}

// Nodes are the nodes, with their labels and little more.
func (s *Set) Nodes() *Store[*corev1.Node] {
	return kept(s, corev1.SchemeGroupVersion.WithResource("nodes"), func() *Store[*corev1.Node] {
		return newStore("Node", &corev1.Node{}, s.clients.Core, s.clients.Core.CoreV1().Nodes(), s.named(), s.logger)
	})
}

// Namespaces are the namespaces.
func (s *Set) Namespaces() *Store[*corev1.Namespace] {
	return kept(s, corev1.SchemeGroupVersion.WithResource("namespaces"), func() *Store[*corev1.Namespace] {
		return newStore("Namespace", &corev1.Namespace{}, s.clients.Core, s.clients.Core.CoreV1().Namespaces(), chosen{}, s.logger)
	})
}

// Drivers are the CSIDrivers.
func (s *Set) Drivers() *Store[*storagev1.CSIDriver] {
	return kept(s, storagev1.SchemeGroupVersion.WithResource("csidrivers"), func() *Store[*storagev1.CSIDriver] {
		return newStore("CSIDriver", &storagev1.CSIDriver{}, s.clients.Core, s.clients.Core.StorageV1().CSIDrivers(), chosen{}, s.logger)
	})
}

// Classes are the StorageClasses.
func (s *Set) Classes() *Store[*storagev1.StorageClass] {
	return kept(s, storagev1.SchemeGroupVersion.WithResource("storageclasses"), func() *Store[*storagev1.StorageClass] {
		return newStore("StorageClass", &storagev1.StorageClass{}, s.clients.Core,
			s.clients.Core.StorageV1().StorageClasses(), chosen{}, s.logger)
	})
}

// Attachments are the VolumeAttachments.
func (s *Set) Attachments() *Store[*storagev1.VolumeAttachment] {
	return kept(s, storagev1.SchemeGroupVersion.WithResource("volumeattachments"), func() *Store[*storagev1.VolumeAttachment] {
		return newStore("VolumeAttachment", &storagev1.VolumeAttachment{}, s.clients.Core,
			s.clients.Core.StorageV1().VolumeAttachments(), chosen{}, s.logger)
	})
}

// CSINodes are the nodes' lists of registered drivers.
func (s *Set) CSINodes() *Store[*storagev1.CSINode] {
	return kept(s, storagev1.SchemeGroupVersion.WithResource("csinodes"), func() *Store[*storagev1.CSINode] {
		return newStore("CSINode", &storagev1.CSINode{}, s.clients.Core,
			s.clients.Core.StorageV1().CSINodes(), s.named(), s.logger)
	})
}

// AttributesClasses are the VolumeAttributesClasses. Kubernetes before 1.34 lacks them;
// the store is empty then, and not synced.
func (s *Set) AttributesClasses() *Store[*storagev1.VolumeAttributesClass] {
	return kept(s, storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses"), func() *Store[*storagev1.VolumeAttributesClass] {
		return newStore("VolumeAttributesClass", &storagev1.VolumeAttributesClass{}, s.clients.Core,
			s.clients.Core.StorageV1().VolumeAttributesClasses(), chosen{}, s.logger)
	})
}

// Capacities are this driver's CSIStorageCapacity objects in the process's own
// namespace, of one value of claim.CapacityManagerLabel: next to other nodes'
// processes, each watches its own only. "" means those of all processes.
func (s *Set) Capacities(manager string) *Store[*storagev1.CSIStorageCapacity] {
	return kept(s, storagev1.SchemeGroupVersion.WithResource("csistoragecapacities"), func() *Store[*storagev1.CSIStorageCapacity] {
		selected := labels.Set{claim.CapacityDriverLabel: s.driver}
		if manager != "" {
			selected[claim.CapacityManagerLabel] = manager
		}
		mine := chosen{labels: selected.String()}
		return newStore("CSIStorageCapacity", &storagev1.CSIStorageCapacity{}, s.clients.Core,
			s.clients.Core.StorageV1().CSIStorageCapacities(s.namespace), mine, s.logger)
	})
}

// SnapshotObjects are the VolumeSnapshots. This kind and those below are custom
// resources, which a cluster may lack: see WaitServed.
func (s *Set) SnapshotObjects() *Store[*snapshotv1.VolumeSnapshot] {
	return kept(s, snapshotv1.SchemeGroupVersion.WithResource("volumesnapshots"), func() *Store[*snapshotv1.VolumeSnapshot] {
		return newStore("VolumeSnapshot", &snapshotv1.VolumeSnapshot{}, s.clients.Snapshots,
			s.clients.Snapshots.SnapshotV1().VolumeSnapshots(metav1.NamespaceAll), chosen{}, s.logger)
	})
}

// Contents are the VolumeSnapshotContents.
func (s *Set) Contents() *Store[*snapshotv1.VolumeSnapshotContent] {
	return kept(s, snapshotv1.SchemeGroupVersion.WithResource("volumesnapshotcontents"), func() *Store[*snapshotv1.VolumeSnapshotContent] {
		return newStore("VolumeSnapshotContent", &snapshotv1.VolumeSnapshotContent{}, s.clients.Snapshots,
			s.clients.Snapshots.SnapshotV1().VolumeSnapshotContents(), s.labelled(claim.ManagedByLabel), s.logger)
	})
}

// SnapshotClasses are the VolumeSnapshotClasses.
func (s *Set) SnapshotClasses() *Store[*snapshotv1.VolumeSnapshotClass] {
	return kept(s, snapshotv1.SchemeGroupVersion.WithResource("volumesnapshotclasses"), func() *Store[*snapshotv1.VolumeSnapshotClass] {
		return newStore("VolumeSnapshotClass", &snapshotv1.VolumeSnapshotClass{}, s.clients.Snapshots,
			s.clients.Snapshots.SnapshotV1().VolumeSnapshotClasses(), chosen{}, s.logger)
	})
}

// GroupContents are the VolumeGroupSnapshotContents.
func (s *Set) GroupContents() *Store[*groupv1.VolumeGroupSnapshotContent] {
	return kept(s, groupv1.SchemeGroupVersion.WithResource("volumegroupsnapshotcontents"), func() *Store[*groupv1.VolumeGroupSnapshotContent] {
		return newStore("VolumeGroupSnapshotContent", &groupv1.VolumeGroupSnapshotContent{}, s.clients.Snapshots,
			s.clients.Snapshots.GroupsnapshotV1().VolumeGroupSnapshotContents(), s.labelled(claim.ManagedByLabel), s.logger)
	})
}

// GroupClasses are the VolumeGroupSnapshotClasses.
func (s *Set) GroupClasses() *Store[*groupv1.VolumeGroupSnapshotClass] {
	return kept(s, groupv1.SchemeGroupVersion.WithResource("volumegroupsnapshotclasses"), func() *Store[*groupv1.VolumeGroupSnapshotClass] {
		return newStore("VolumeGroupSnapshotClass", &groupv1.VolumeGroupSnapshotClass{}, s.clients.Snapshots,
			s.clients.Snapshots.GroupsnapshotV1().VolumeGroupSnapshotClasses(), chosen{}, s.logger)
	})
}

// custom reports whether a resource is a custom one, which a cluster may lack for ever.
func custom(resource schema.GroupVersionResource) bool {
	return slices.Contains([]string{
		snapshotv1.SchemeGroupVersion.Group, groupv1.SchemeGroupVersion.Group, grant.Group,
	}, resource.Group)
}

// optional reports whether a cluster may lack a resource: a custom one, or a kind that
// supported versions of Kubernetes do not all serve.
func optional(resource schema.GroupVersionResource) bool {
	return custom(resource) || resource == storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses")
}

// Start lists and watches all requested kinds until ctx ends. For kinds that the cluster
// does not serve it polls once a minute.
func (s *Set) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := map[schema.GroupVersion]map[string]store{}
	for resource, kind := range s.stores {
		if !optional(resource) {
			kind.start(ctx, s.suppressed)
			continue
		}
		version := resource.GroupVersion()
		if missing[version] == nil {
			missing[version] = map[string]store{}
		}
		missing[version][resource.Resource] = kind
	}
	for version, kinds := range missing {
		go s.startWhenServed(ctx, version, kinds)
	}
}

// PollServed sets the interval of the polls for kinds that the cluster lacks; the
// default is a minute. It must be called before Start.
func (s *Set) PollServed(every time.Duration) { s.servePoll = every }

func (s *Set) startWhenServed(ctx context.Context, version schema.GroupVersion, kinds map[string]store) {
	for logged := false; len(kinds) > 0; {
		served, err := s.served(ctx, version)
		if err != nil {
			s.logger.WarnContext(ctx, "cannot read which kinds the API server serves", "group", version.Group, "error", err)
		}
		for resource, kind := range kinds {
			if served[resource] || err == nil && s.useOlder(ctx, version.WithResource(resource)) {
				s.startOne(ctx, kind)
				delete(kinds, resource)
			}
			if err == nil { // else what was read before is still the best answer
				s.noteAbsent(version.WithResource(resource), kinds[resource] != nil)
			}
		}
		if len(kinds) > 0 && err == nil && !logged {
			logged = true
			s.logger.InfoContext(ctx, "the cluster lacks some kinds; their controllers wait until they are installed",
				"group", version.String(), "kinds", len(kinds))
		}
		pause := s.servePoll
		if err != nil {
			pause = min(pause, slowestPoll)
		}
		if len(kinds) > 0 && !work.Sleep(ctx, pause) {
			return
		}
	}
}

func (s *Set) noteAbsent(resource schema.GroupVersionResource, absent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.absent[resource] = absent
}

// Lacks reports whether the cluster did not serve a requested kind of an optional group when
// that was last read.
func (s *Set) Lacks(group string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource, absent := range s.absent {
		if absent && resource.Group == group {
			return true
		}
	}
	return false
}

// startOne holds the lock, so that Notify comes either before or after it.
func (s *Set) startOne(ctx context.Context, kind store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind.start(ctx, s.suppressed)
}

// Suppress keeps handlers (OnChange) from being called until Notify: for a standby
// with filled caches, whose queues would only grow. It must be called before Start.
func (s *Set) Suppress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suppressed = true
}

// Notify ends the suppression. It returns when the handlers have been called for
// every object of Kubernetes' own kinds, or ctx's error if that ends first.
func (s *Set) Notify(ctx context.Context) error {
	s.mu.Lock()
	s.suppressed = false
	for _, kind := range s.stores {
		kind.notify()
	}
	s.mu.Unlock()
	return s.Wait(ctx)
}

// Forget removes all handlers and suppresses those that are registered afterwards, until
// Notify: for controllers that end while the caches stay.
func (s *Set) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suppressed = true
	for _, kind := range s.stores {
		kind.forget()
	}
}

func (s *Set) served(ctx context.Context, version schema.GroupVersion) (map[string]bool, error) {
	list, err := s.clients.Core.Served(ctx, version)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", version, err)
	}
	found := map[string]bool{}
	for _, resource := range list.APIResources {
		found[resource.Name] = true
	}
	return found, nil
}

// Wait returns when the caches of all built-in kinds have synced that the cluster serves.
// It does not wait for custom resources.
func (s *Set) Wait(ctx context.Context) error { return s.wait(ctx, s.builtIn) }

// builtIn reports whether a resource is one of Kubernetes itself, unless the cluster is
// known to lack it. The caller holds the lock.
func (s *Set) builtIn(resource schema.GroupVersionResource) bool {
	return !custom(resource) && !s.absent[resource]
}

// WaitServed returns when the given resources of a group are served and their caches
// have synced. They must have been requested.
func (s *Set) WaitServed(ctx context.Context, version schema.GroupVersion, resources ...string) error {
	requested := map[string]bool{}
	for _, resource := range resources {
		requested[resource] = true
	}
	return s.wait(ctx, func(r schema.GroupVersionResource) bool {
		return r.GroupVersion() == version && requested[r.Resource]
	})
}

// wait polls often at first and rarely in the end: a cluster may lack custom
// resources for ever.
func (s *Set) wait(ctx context.Context, which func(schema.GroupVersionResource) bool) error {
	for next := syncPoll; !s.synced(which); next = min(next*5/4, slowestPoll) {
		if !work.Sleep(ctx, next) {
			return ctx.Err()
		}
	}
	return nil
}

// Synced reports whether the caches of all kinds of Kubernetes' own are filled.
func (s *Set) Synced() bool { return s.synced(s.builtIn) }

func (s *Set) synced(which func(schema.GroupVersionResource) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource, kind := range s.stores {
		if which(resource) && !kind.HasSynced() {
			return false
		}
	}
	return true
}
