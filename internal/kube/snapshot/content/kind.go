package content

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// View has the fields of a content of either kind that the controller reads.
type View struct {
	Meta metav1.ObjectMeta
	Spec any
	// Driver, Class and Policy are the spec's; Class is nil if it names none.
	Driver string
	Class  *string
	Policy snapshotv1.DeletionPolicy
	// User is the namespace, name and UID of the snapshot that the content is bound to.
	User claim.SnapshotNames
	UID  types.UID
	// Volumes are the IDs of the volumes that are snapshotted; none if Static.
	Volumes []string
	// Static reports that an administrator created the content for an existing snapshot.
	Static bool
	// Member reports that the snapshot belongs to a group, which deletes it.
	Member bool
	// Handle is the recorded ID of the snapshot, "" if there is none. Desired is the
	// ID that the content is about: the recorded one, or the administrator's.
	Handle, Desired string
	Ready           bool
	Taken           time.Time // of the snapshot, zero if unknown
	Error           string    // the message in the status
}

// since returns when the snapshot was taken, as far as known.
func (v View) since() time.Time {
	if v.Taken.IsZero() {
		return v.Meta.CreationTimestamp.Time
	}
	return v.Taken
}

// Traits are the words and the tables of a kind of contents.
type Traits struct {
	Kind, ClassKind string
	// Noun is the snapshot in messages; Failpoints is the prefix of the failpoints.
	Noun, Failpoints string
	Queue            string
	// Operation and Deletion are the kinds of operations in the metrics (metrics.Kinds).
	Operation, Deletion string

	Group     schema.GroupVersion
	Resources []string
	Keys      claim.SnapshotKeys
	// The reasons of events, which are csi-snapshotter's.
	ReasonCreation, ReasonCheck, ReasonDelete string
	// HandleField is the field of the status with the ID of the snapshot.
	HandleField string
	// Cleared are the fields of the status that go with a deleted snapshot.
	Cleared []string
	// Inspected reports that a snapshot which is not ready is inspected by its ID. Else
	// the call that created it is repeated, as CSI demands for single snapshots.
	Inspected bool

	ParseClass func(name string, parameters map[string]string) (claim.SnapshotClass, error)
	Name       func(claim.Naming, types.UID) (string, error)
	Metadata   func(claim.SnapshotNames) map[string]string
}

// Answer is the driver's answer about a snapshot that exists.
type Answer struct {
	// Status is merged into the content's status; nil if the driver cannot report it.
	Status map[string]any
	// Topology is from where the snapshot can be restored; none if the driver does not say.
	Topology []*csi.Topology
}

// Kind is one kind of contents: how they are read, and the calls of the driver.
type Kind[T cluster.Object] interface {
	View(object T) View
	// Class returns a class's driver and parameters from the cache.
	Class(name string) (driver string, parameters map[string]string, found bool)
	// Able returns an error if the driver lacks the calls that create snapshots.
	Able(ctx context.Context) error
	// Create creates the snapshot, or repeats the call. An answer that contradicts the
	// content is an error.
	Create(ctx context.Context, object T, request Request, secrets map[string]string) (Answer, error)
	// Inspect asks for a snapshot that exists. class parses the content's class.
	Inspect(ctx context.Context, object T, class func() (claim.SnapshotClass, error)) (Answer, error)
	// Has reports whether this node's driver has the snapshot.
	Has(ctx context.Context, object T, class func() (claim.SnapshotClass, error)) (bool, error)
	Delete(ctx context.Context, object T, secrets map[string]string) error
}
