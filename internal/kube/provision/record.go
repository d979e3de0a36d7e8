package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// record is the intent that is written before CreateVolume is called: everything
// from which the call, its repetition after a crash, and the PersistentVolume are
// built. Its key is the claim's UID. It names the secret, but holds none of its data.
type record struct {
	Request json.RawMessage          `json:"request"` // CreateVolumeRequest as protobuf's JSON, without secrets and topology
	Volume  *corev1.PersistentVolume `json:"volume"`  // without what the driver answers
	// Topology is the request's accessibility_requirements, which name every place
	// of the cluster for immediate binding.
	Topology *claim.PackedTopology `json:"topology,omitempty"`
	// Source is the data source as cluster.ClaimBySource has it.
	Source string `json:"source,omitempty"`
	// Node is the node that was selected, or whose process marked the intent.
	Node string `json:"node,omitempty"`
	// Instances are the instances of the driver to which the request may have been
	// sent, by node_id; one without a node service is "". Each is added durably before
	// its first call. Intents of earlier versions lack it and count as sent to "": a process
	// without a node service then takes its driver's rejection for proof.
	Instances []string `json:"instances,omitempty"`
	// Unsaved reports that no process has tried to create the PersistentVolume. It is
	// cleared durably before the first try: from then on a user may have the data of
	// the volume, and only an object decides about it. Intents of earlier versions
	// lack it.
	Unsaved bool `json:"unsaved,omitempty"`

	Since time.Time `json:"since"`
	// Quarantine says why it is unknown whether the volume exists. The intent is kept
	// for an administrator.
	Quarantine string `json:"suspect,omitempty"`
}

func newRecord(
	request *csi.CreateVolumeRequest, volume *corev1.PersistentVolume, source, node, instance string,
) (record, error) {
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
	return record{
		Request: text, Topology: topology, Volume: volume, Source: source, Node: node, Instances: []string{instance},
		Unsaved: true, Since: time.Now().UTC().Truncate(time.Second),
	}, nil
}

// UnmarshalJSON rejects invalid intents: a user may have edited the ConfigMap.
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
	if err != nil {
		return ""
	}
	here := lifecycle.NodeInstance{Node: c.env.Scope.Node, ID: c.env.DriverNode, Segments: c.env.Scope.Segments}
	origin := lifecycle.IntentOrigin{Topology: requirement, Instances: left.Instances, MaySaved: !left.Unsaved}
	if lifecycle.CompletesIntent(origin, here) {
		return c.env.Scope.Node
	}
	return ""
}

// addInstance records durably that this process's instance of the driver is about to be
// sent the request of an intent that another one was sent before. It returns the intent
// as it is stored: the process that left it may have marked it since Load. ok is false
// if an administrator has removed the intent.
func (c *Controller) addInstance(ctx context.Context, left record) (added record, ok bool, err error) {
	if slices.Contains(left.Instances, c.env.DriverNode) {
		return left, true, nil
	}
	uid := string(left.Volume.Spec.ClaimRef.UID)
	current, found, err := c.intents.Reread(ctx, uid)
	if err != nil || !found {
		return left, false, err
	}
	if current.Instances == nil {
		current.Instances = []string{""} // an earlier version did not record it
	}
	if slices.Contains(current.Instances, c.env.DriverNode) {
		return current, true, nil
	}
	current.Instances = append(slices.Clone(current.Instances), c.env.DriverNode)
	if err := c.intents.Put(ctx, uid, current); err != nil {
		return current, true, fmt.Errorf("record that volume %q is created by this instance of the driver: %w", left.Volume.Name, err)
	}
	return current, true, nil
}

// sentElsewhere reports whether the request of an intent may have been sent to
// another instance of the driver than this process's.
func (c *Controller) sentElsewhere(left record) bool {
	return slices.ContainsFunc(left.Instances, func(id string) bool { return id != c.env.DriverNode })
}

// secret names the secret for creation and deletion.
func (r record) secret() *corev1.SecretReference {
	reference, _ := claim.DeletionSecret(r.Volume)
	return reference
}

func (r record) claimKey() string {
	return r.Volume.Spec.ClaimRef.Namespace + "/" + r.Volume.Spec.ClaimRef.Name
}

// claimStub refers to the claim in events, also after its deletion.
func (r record) claimStub() *corev1.PersistentVolumeClaim {
	reference := r.Volume.Spec.ClaimRef
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace, Name: reference.Name, UID: reference.UID},
	}
}

func (c *Controller) quarantined() int {
	found := 0
	for _, r := range c.intents.All() {
		if r.Quarantine != "" {
			found++
		}
	}
	return found
}
