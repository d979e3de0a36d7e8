package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// record is what is written down before CreateVolume is called: everything
// that the call, its repetition after a crash, and the PersistentVolume are
// made of. Its key is the claim's UID. It holds no secret, only where it is.
type record struct {
	Request json.RawMessage          `json:"request"` // CreateVolumeRequest as protobuf's JSON, without secrets and topology
	Volume  *corev1.PersistentVolume `json:"volume"`  // without what the driver answers
	// Topology is the request's accessibility_requirements, which name every place
	// of the cluster for immediate binding.
	Topology *claim.PackedTopology `json:"topology,omitempty"`
	// Source is the data source as cluster.ClaimBySource has it.
	Source string `json:"source,omitempty"`
	// Node is the node that was selected.
	Node string `json:"node,omitempty"`
	// Unsaved reports that no process has tried to create the PersistentVolume. It is
	// cleared durably before the first try: from then on a user may have the data of
	// the volume, and only an object decides about it. Intents of earlier versions
	// lack it.
	Unsaved bool `json:"unsaved,omitempty"`

	Since time.Time `json:"since"`
	// Suspect says why nobody can tell whether the volume exists: it is kept for
	// a person to look at.
	Suspect string `json:"suspect,omitempty"`
}

func newRecord(request *csi.CreateVolumeRequest, volume *corev1.PersistentVolume, source, node string) (record, error) {
	topology, err := claim.PackTopology(request.GetAccessibilityRequirements())
	if err != nil {
		return record{}, fmt.Errorf("record of volume %s: %w", volume.Name, err)
	}
	places := request.GetAccessibilityRequirements()
	request.AccessibilityRequirements = nil
	text, err := protojson.Marshal(request)
	request.AccessibilityRequirements = places
	if err != nil {
		return record{}, fmt.Errorf("record of volume %s: %w", volume.Name, err)
	}
	return record{Request: text, Topology: topology, Volume: volume, Source: source, Node: node, Unsaved: true, Since: time.Now().UTC().Truncate(time.Second)}, nil
}

// UnmarshalJSON refuses what is no record: a hand may have been at it.
func (r *record) UnmarshalJSON(text []byte) error {
	type plain record
	if err := json.Unmarshal(text, (*plain)(r)); err != nil {
		return err
	}
	if r.Volume == nil || r.Volume.Spec.ClaimRef == nil || r.Volume.Spec.CSI == nil || len(r.Request) == 0 {
		return errors.New("the record lacks its request, its volume, or of that claimRef or csi")
	}
	return nil
}

// request is the recorded request, with the secrets of this call.
func (r record) request(secrets map[string]string) (*csi.CreateVolumeRequest, error) {
	request := &csi.CreateVolumeRequest{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(r.Request, request); err != nil {
		return nil, fmt.Errorf("the recorded request of volume %s is damaged: %w", r.Volume.Name, err)
	}
	topology, err := r.Topology.Requirement()
	if err != nil {
		return nil, fmt.Errorf("the recorded request of volume %s is damaged: %w", r.Volume.Name, err)
	}
	if topology != nil {
		request.AccessibilityRequirements = topology
	}
	request.Secrets = secrets
	return request, nil
}

// nodeOf returns the node that completes an intent of a central process, as far as
// this process can name it: the selected one, or its own; "" for none that it knows.
func (c *Controller) nodeOf(left record) string {
	if left.Node != "" || c.env.Scope.Central() {
		return left.Node
	}
	requirement, err := left.Topology.Requirement()
	if err == nil && lifecycle.CompletesIntent(lifecycle.IntentOrigin{Topology: requirement}, c.env.Scope.Node, c.env.Scope.Segments) {
		return c.env.Scope.Node
	}
	return ""
}

// secret is where the secret for creation and deletion is.
func (r record) secret() *corev1.SecretReference {
	reference, _ := claim.DeletionSecret(r.Volume)
	return reference
}

func (r record) claimKey() string {
	return r.Volume.Spec.ClaimRef.Namespace + "/" + r.Volume.Spec.ClaimRef.Name
}

// claimStub stands for the claim in events, also when it is gone.
func (r record) claimStub() *corev1.PersistentVolumeClaim {
	reference := r.Volume.Spec.ClaimRef
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace, Name: reference.Name, UID: reference.UID},
	}
}

func (c *Controller) suspects() int {
	found := 0
	for _, r := range c.intents.All() {
		if r.Suspect != "" {
			found++
		}
	}
	return found
}
