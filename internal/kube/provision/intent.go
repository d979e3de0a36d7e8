package provision

import (
	"cmp"
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

// volumeIntent is written before CreateVolume is called. The call, its repetition after a
// crash, and the PersistentVolume are built from it. Its key is the claim's UID. It names
// the secret, but holds none of its data.
type volumeIntent struct {
	Request json.RawMessage          `json:"request"` // CreateVolumeRequest as protobuf's JSON, without secrets and topology
	Volume  *corev1.PersistentVolume `json:"volume"`  // without the driver's answer
	// Topology is the request's accessibility_requirements, which name every segment of
	// the cluster for immediate binding.
	Topology *claim.PackedTopology `json:"topology,omitempty"`
	// Source is the data source as cluster.ClaimBySource has it.
	Source string `json:"source,omitempty"`
	// Node is the node that was selected, or whose process marked the intent.
	Node string `json:"node,omitempty"`
	// Instances are the instances of the driver to which the request may have been
	// sent, by node_id; one without a node service is "". Each is added durably before
	// its first call. Intents of earlier versions lack it and count as sent to "": for a
	// process without a node service, its driver's rejection is proof.
	Instances []string `json:"instances,omitempty"`
	// Unsaved reports that no process has tried to create the PersistentVolume. It is
	// cleared durably before the first try: from then on a user may have the data of
	// the volume, and only an object decides about it. Intents of earlier versions
	// lack it.
	Unsaved bool `json:"unsaved,omitempty"`

	Since time.Time `json:"since"`
	// Quarantine is the reason why it is unknown whether the volume exists. The intent is kept
	// for an administrator.
	Quarantine string `json:"suspect,omitempty"`
}

func (c *Controller) newIntent(
	request *csi.CreateVolumeRequest, volume *corev1.PersistentVolume, source, node string,
) (volumeIntent, error) {
	topology, err := c.packer.Pack(request.GetAccessibilityRequirements())
	if err != nil {
		return volumeIntent{}, fmt.Errorf("intent of volume %s: %w", volume.Name, err)
	}
	requirements := request.GetAccessibilityRequirements()
	request.AccessibilityRequirements = nil
	text, err := protojson.Marshal(request)
	request.AccessibilityRequirements = requirements
	if err != nil {
		return volumeIntent{}, fmt.Errorf("intent of volume %s: %w", volume.Name, err)
	}
	c.beginTrace(volume)
	return volumeIntent{
		Request: text, Topology: topology, Volume: volume, Source: source, Node: node, Instances: []string{c.env.DriverNode},
		Unsaved: true, Since: time.Now().UTC().Truncate(time.Second),
	}, nil
}

// UnmarshalJSON rejects invalid intents: a user may have edited the ConfigMap.
func (i *volumeIntent) UnmarshalJSON(text []byte) error {
	type plain volumeIntent
	if err := json.Unmarshal(text, (*plain)(i)); err != nil {
		return err
	}
	if i.Volume == nil || i.Volume.Spec.ClaimRef == nil || i.Volume.Spec.CSI == nil || len(i.Request) == 0 {
		return errors.New("the intent lacks request or volume, or its volume lacks claimRef or csi")
	}
	return nil
}

// request returns the request of the intent, with the secrets of this call.
func (i volumeIntent) request(secrets map[string]string) (*csi.CreateVolumeRequest, error) {
	request := &csi.CreateVolumeRequest{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(i.Request, request); err != nil {
		return nil, fmt.Errorf("the request in the intent of volume %s is damaged: %w", i.Volume.Name, err)
	}
	topology, err := i.Topology.Requirement()
	if err != nil {
		return nil, fmt.Errorf("the request in the intent of volume %s is damaged: %w", i.Volume.Name, err)
	}
	if topology != nil {
		request.AccessibilityRequirements = topology
	}
	request.Secrets = secrets
	return request, nil
}

// merge combines a stored version of an intent, which another process may have written,
// with the next one. The driver may have been sent the stored request, so it stays, unless
// the next version alone is that of the PersistentVolume.
func merge(stored, next volumeIntent) volumeIntent {
	merged := stored
	if stored.Unsaved && !next.Unsaved {
		merged = next
	}
	merged.Instances = slices.Clone(stored.Instances)
	if stored.Instances == nil && next.Instances != nil {
		merged.Instances = []string{""} // the earlier version did not list it
	}
	for _, instance := range next.Instances {
		if !slices.Contains(merged.Instances, instance) {
			merged.Instances = append(merged.Instances, instance)
		}
	}
	merged.Quarantine = cmp.Or(next.Quarantine, stored.Quarantine)
	return merged
}

// split returns an intent without the topologies of its request, which it shares with
// the intents of other claims.
func split(i volumeIntent) (volumeIntent, []byte) {
	var topologies []byte
	i.Topology, topologies = i.Topology.Split()
	return i, topologies
}

// join is the inverse of split.
func join(i volumeIntent, topologies []byte) volumeIntent {
	i.Topology = i.Topology.Join(topologies)
	return i
}

// nodeOf returns the node that completes an intent of a central process, as far as
// this process can name it: the selected one, or its own; else "".
func (c *Controller) nodeOf(intent volumeIntent) string {
	if intent.Node != "" || c.env.Scope.Central() {
		return intent.Node
	}
	requirement, err := intent.Topology.Requirement()
	if err != nil {
		return ""
	}
	node := lifecycle.NodeInstance{Node: c.env.Scope.Node, ID: c.env.DriverNode, Segments: c.env.Scope.Segments}
	origin := lifecycle.IntentOrigin{Topology: requirement, Instances: intent.Instances, MaySaved: !intent.Unsaved}
	if lifecycle.CompletesIntent(origin, node) {
		return c.env.Scope.Node
	}
	return ""
}

// addInstance records durably that this process's instance of the driver is about to be
// sent the request of an intent that another one was sent before. It returns the intent
// as it is stored: the process that wrote it may have marked it since Load. ok is false
// if an administrator has removed the intent.
func (c *Controller) addInstance(ctx context.Context, intent volumeIntent) (added volumeIntent, ok bool, err error) {
	if slices.Contains(intent.Instances, c.env.DriverNode) {
		return intent, true, nil
	}
	uid := string(intent.Volume.Spec.ClaimRef.UID)
	current, found, err := c.intents.Reread(ctx, uid)
	if err != nil || !found {
		return intent, false, err
	}
	next := current
	next.Instances = []string{c.env.DriverNode}
	if next = merge(current, next); slices.Equal(next.Instances, current.Instances) {
		return current, true, nil
	}
	if next, err = c.intents.Put(ctx, uid, next); err != nil {
		err = fmt.Errorf("record that volume %q is created by this instance of the driver: %w", intent.Volume.Name, err)
	}
	return next, true, err
}

// sentElsewhere reports whether the request of an intent may have been sent to
// another instance of the driver than this process's.
func (c *Controller) sentElsewhere(intent volumeIntent) bool {
	return slices.ContainsFunc(intent.Instances, func(id string) bool { return id != c.env.DriverNode })
}

// identity names the run of the process that prepared the request.
func (i volumeIntent) identity() string {
	return i.Volume.Spec.CSI.VolumeAttributes[claim.IdentityAttribute]
}

// secret names the secret for creation and deletion.
func (i volumeIntent) secret() *corev1.SecretReference {
	reference, _ := claim.DeletionSecret(i.Volume)
	return reference
}

func (i volumeIntent) claimKey() string {
	return i.Volume.Spec.ClaimRef.Namespace + "/" + i.Volume.Spec.ClaimRef.Name
}

// claimStub refers to the claim in events, also after its deletion.
func (i volumeIntent) claimStub() *corev1.PersistentVolumeClaim {
	reference := i.Volume.Spec.ClaimRef
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace, Name: reference.Name, UID: reference.UID},
	}
}

func (c *Controller) quarantined() int {
	found := 0
	for _, intent := range c.intents.All() {
		if intent.Quarantine != "" {
			found++
		}
	}
	return found
}
