// Package contenttest tests the controllers of both kinds of snapshot contents: each
// kind describes itself as a Suite and runs it. The controller works with an API server
// and a driver in memory.
package contenttest

import (
	"context"
	"slices"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	// Driver is the name of the driver under test.
	Driver = "test.example.org"
	// ClassName is the class of contents that Make returns. Every cluster has it.
	ClassName = "cold"
)

// Suite describes a kind of contents to the tests.
type Suite[T cluster.Object] struct {
	Traits content.Traits
	New    func(*cluster.Env, content.Options) *content.Controller[T]
	View   func(T) content.View
	Kind   func(*cluster.Env) content.Kind[T]
	List   func(context.Context, *apiserver.Cluster) ([]T, error)
	API    func(*apiserver.Cluster) cluster.Client[T]

	// Bare returns a content with metadata and a source, but without Fields.
	Bare func(metav1.ObjectMeta) T
	// Fields returns the fields of a content's spec that both kinds have.
	Fields func(T) Fields
	Class  func(name, driver string, parameters map[string]string) runtime.Object
	// Of makes the content one of volumes; a content of a single volume ignores others.
	Of func(object T, volumes ...string)
	// Existing makes the content one of a snapshot that exists at the driver.
	Existing func(T, Snapshot)
	// Record writes a snapshot into the status, and Fail an error.
	Record func(object T, s Snapshot, ready bool)
	Fail   func(object T, message string)
	// Members returns the IDs of a recorded group's members.
	Members func(T) []string

	// Prefix is the default prefix of the names of the driver's snapshots; Object is
	// the user's object in parameters and templates of a class.
	Prefix, Object string
	// Create and Delete are the driver's RPCs, Inspect that of an existing snapshot,
	// and Poll the one that is repeated until a snapshot is ready.
	Create, Delete, Inspect, Poll string
	// InspectSecret is the stem of a class's parameters for the secret of Inspect.
	InspectSecret string
	// Absent is a part of the error about a snapshot that the driver lacks.
	Absent string
	// Add creates a snapshot of content a's volumes at the driver.
	Add func(d *csidriver.Driver, name string) Snapshot
	// Left returns the IDs of the snapshots at the driver, or of the groups.
	Left func(*csidriver.Driver) []string
	// PerContent is how many single snapshots the driver has for a content.
	PerContent int
	// Lacking are the ways in which a driver can lack the Capability.
	Lacking    map[string]func(*csidriver.Driver)
	Capability string
}

// Fields of a content's spec.
type Fields struct {
	Driver *string
	Class  **string
	Policy *snapshotv1.DeletionPolicy
	Ref    *corev1.ObjectReference
}

// Snapshot is a snapshot at the driver; Members are the snapshots of a group.
type Snapshot struct {
	ID      string
	Members []string
}

// Run runs the tests that both kinds share.
func (s *Suite[T]) Run(t *testing.T) {
	for _, test := range slices.Concat(s.creations(), s.deletions(), s.faults(), s.nodes()) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

type test struct {
	name string
	run  func(*testing.T)
}

// creations are the tests of steps, requests and answers.
func (s *Suite[T]) creations() []test {
	return []test{
		{"next step", s.nextStep},
		{"a snapshot is created, recorded and deleted", s.createsRecordsAndDeletes},
		{"the request has parameters, secrets and metadata", s.sendsParametersSecretsAndMetadata},
		{"mark and finalizer precede the call", s.marksBeforeTheCall},
		{"readiness is polled apart from errors", s.pollsReadinessApartFromErrors},
		{"errors are reported and retried", s.reportsAndRetriesErrors},
		{"two contents never have one snapshot", s.rejectsASecondContentOfASnapshot},
		{"two contents never have one snapshot, after a lost answer", s.reservesASnapshotWhoseRecordingIsUnknown},
		{"missing objects are reported and awaited", s.awaitsMissingObjects},
		{"contents of other drivers are ignored", s.ignoresOtherDrivers},
		{"a driver without the capability is reported", s.reportsAMissingCapability},
		{"CRDs installed later are served", s.servesCRDsInstalledLater},
		{"unfinished operations are in the metrics", s.showsUnfinishedOperations},
		{"an absent snapshot is reported and polled", s.pollsAnAbsentSnapshot},
		{"an existing snapshot is read with the class's secret", s.inspectsWithTheClassSecret},
	}
}

// deletions are the tests of deletions.
func (s *Suite[T]) deletions() []test {
	return []test{
		{"a deletion during the call leaves nothing", s.deletedDuringTheCall},
		{"a deletion after a final error makes no call", s.deletedAfterAFinalError},
		{"policy Retain keeps the snapshot", s.retains},
		{"a deletion waits for another content", s.deletionWaitsForAnotherContent},
		{"a deletion waits for the cache of contents", s.deletionWaitsForTheCache},
		{"both contents of a snapshot are deleted", s.deletesBothContents},
		{"a deletion is retried", s.retriesTheDeletion},
		{"the deletion policy is read before the deletion", s.readsThePolicyBeforeTheDeletion},
		{"a missing secret blocks the deletion", s.missingSecretBlocksTheDeletion},
		{"an unbound content needs no user", s.deletesAnUnboundContent},
	}
}

// faults are the tests of lost answers, faults and crashes.
func (s *Suite[T]) faults() []test {
	return []test{
		{"a code of unknown outcome keeps the mark", s.keepsTheMark},
		{"a rejection by another instance proves nothing", s.distrustsAnotherInstance},
		{"the request is frozen", s.freezesTheRequest},
		{"the request survives changes of the content", s.repeatsTheRequest},
		{"another driver's class changes nothing", s.ignoresAnotherDriversClass},
		{"a rejected request is discarded", s.discardsARejectedRequest},
		{"a driver that hangs blocks no other content", s.survivesAHungDriver},
		{"a class that hangs blocks no other class", s.survivesAHungClass},
		{"deletions that hang block no creation", s.survivesHungDeletions},
		{"the call of a driver that died is retried", s.retriesTheCallOfADeadDriver},
		{"faults of the API server are retried", s.retriesFaultsOfTheAPIServer},
		{"broken watches lose nothing", s.survivesBrokenWatches},
		{"concurrent writes are kept", s.keepsConcurrentWrites},
		{"a rejected write is not retried at once", s.pausesAfterARejectedWrite},
		{"a crash during a creation", s.crashDuringACreation},
		{"a crash during a deletion", s.crashDuringADeletion},
		{"a stale cache creates no snapshot", s.staleCacheCreatesNothing},
		{"random events and crashes", s.model},
	}
}

// nodes are the tests of controllers on each node.
func (s *Suite[T]) nodes() []test {
	return []test{
		{"a node creates the snapshots of its volumes", s.nodeCreatesAndLabels},
		{"a node ignores other nodes' snapshots", s.nodeIgnoresOthers},
		{"a node serves contents with its label", s.nodeServesItsLabel},
		{"a node waits for unknown volumes", s.nodeWaitsForVolumes},
		{"a node asks its driver for volumes without an affinity", s.nodeAsksItsDriver},
		{"a node adopts a snapshot of its driver", s.nodeAdopts},
		{"a node deletes an unlabelled snapshot of its driver", s.nodeDeletesUnlabelled},
		{"a node deletes a snapshot whose ID another node has", s.nodeDeletesASharedID},
		{"a node keeps a snapshot for a content without a label", s.nodeKeepsForAnUnlabelledContent},
		{"many deletions on a node share the list of contents without a label", s.nodeSharesTheList},
		{"a node removes the finalizer of an orphan", s.nodeReleasesAnOrphan},
	}
}

// Make returns a content as snapshot-controller creates it.
func (s *Suite[T]) Make(name string, changes ...func(T)) T {
	object := s.Bare(metav1.ObjectMeta{Name: name, Finalizers: []string{s.Traits.Keys.Finalizer}})
	fields, class := s.Fields(object), ClassName
	*fields.Driver, *fields.Class, *fields.Policy = Driver, &class, snapshotv1.VolumeSnapshotContentDelete
	*fields.Ref = corev1.ObjectReference{Namespace: "ns", Name: "user-" + name, UID: uid(name)}
	for _, change := range changes {
		change(object)
	}
	return object
}

// Static returns a content that an administrator creates for an existing snapshot.
func (s *Suite[T]) Static(name string, of Snapshot, changes ...func(T)) T {
	made := []func(T){s.Classless, func(object T) { s.Existing(object, of) }}
	return s.Make(name, append(made, changes...)...)
}

// Annotated returns a change that sets an annotation.
func (s *Suite[T]) Annotated(key, value string) func(T) {
	return func(object T) {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		object.SetAnnotations(annotations)
	}
}

// Marked marks a content: the driver may have received the request.
func (s *Suite[T]) Marked(object T) { s.Annotated(s.Traits.Keys.BeingCreated, "yes")(object) }

// UserGone does what snapshot-controller does when the user deletes the snapshot.
func (s *Suite[T]) UserGone(object T) { s.Annotated(s.Traits.Keys.BeingDeleted, "yes")(object) }

// Deleted sets the deletion timestamp.
func (s *Suite[T]) Deleted(object T) {
	now := metav1.Now()
	object.SetDeletionTimestamp(&now)
}

// Unfinalized removes the finalizer.
func (s *Suite[T]) Unfinalized(object T) { object.SetFinalizers(nil) }

// Labelled returns a change that labels the content for a node.
func (s *Suite[T]) Labelled(node string) func(T) {
	return func(object T) { object.SetLabels(map[string]string{claim.ManagedByLabel: node}) }
}

// Retain sets the policy.
func (s *Suite[T]) Retain(object T) {
	*s.Fields(object).Policy = snapshotv1.VolumeSnapshotContentRetain
}

// Unbound removes the UID of the user's object.
func (s *Suite[T]) Unbound(object T) { s.Fields(object).Ref.UID = "" }

// Classless removes the class.
func (s *Suite[T]) Classless(object T) { *s.Fields(object).Class = nil }

// Classed returns a change that sets the class.
func (s *Suite[T]) Classed(name string) func(T) {
	return func(object T) { *s.Fields(object).Class = &name }
}

// Recorded returns a change that records a snapshot.
func (s *Suite[T]) Recorded(of Snapshot, ready bool) func(T) {
	return func(object T) { s.Record(object, of, ready) }
}

// Taken returns the snapshot that the driver in memory creates for a content of Make.
func (s *Suite[T]) Taken(name string) Snapshot {
	taken := Snapshot{ID: "id-" + s.Prefix + "-" + string(uid(name))}
	if s.PerContent > 1 {
		for _, volume := range s.View(s.Make(name)).Volumes {
			taken.Members = append(taken.Members, taken.ID+"-"+volume)
		}
	}
	return taken
}

// IsMarked reports whether a content is marked.
func (s *Suite[T]) IsMarked(object T) bool {
	_, ok := object.GetAnnotations()[s.Traits.Keys.BeingCreated]
	return ok
}

// IsReady reports whether the status says so.
func (s *Suite[T]) IsReady(object T) bool { return s.View(object).Ready }

// IsDone reports whether a content is ready and not marked.
func (s *Suite[T]) IsDone(object T) bool { return s.IsReady(object) && !s.IsMarked(object) }
