package claim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SnapshotKeys are the annotations and the finalizer of one kind of snapshot
// content, as snapshot-controller and csi-snapshotter write them.
type SnapshotKeys struct {
	// BeingCreated ("yes") is on a content from before the call that creates the snapshot
	// until the answer is recorded, or proves that no snapshot exists.
	BeingCreated string
	// BeingDeleted ("yes") is written by snapshot-controller when the user's object is
	// being deleted.
	BeingDeleted string
	// SecretName and SecretNamespace name the secret of the calls that create
	// and delete; snapshot-controller resolved them from the class' templates.
	SecretName, SecretNamespace string
	// Finalizer keeps the content for as long as the driver has its snapshot.
	Finalizer string
}

// VolumeSnapshotKeys are those of a VolumeSnapshotContent.
func VolumeSnapshotKeys() SnapshotKeys {
	const domain = "snapshot.storage.kubernetes.io/"
	return SnapshotKeys{
		BeingCreated:    domain + "volumesnapshot-being-created",
		BeingDeleted:    domain + "volumesnapshot-being-deleted",
		SecretName:      domain + "deletion-secret-name",
		SecretNamespace: domain + "deletion-secret-namespace",
		Finalizer:       domain + "volumesnapshotcontent-bound-protection",
	}
}

// GroupSnapshotKeys are those of a VolumeGroupSnapshotContent.
func GroupSnapshotKeys() SnapshotKeys {
	const domain = "groupsnapshot.storage.kubernetes.io/"
	return SnapshotKeys{
		BeingCreated:    domain + "volumegroupsnapshot-being-created",
		BeingDeleted:    domain + "volumegroupsnapshot-being-deleted",
		SecretName:      domain + "deletion-secret-name",
		SecretNamespace: domain + "deletion-secret-namespace",
		Finalizer:       domain + "volumegroupsnapshotcontent-bound-protection",
	}
}

const (
	// ManagedByLabel on a snapshot content names the node whose driver has the
	// snapshot, if every node runs its own controllers.
	ManagedByLabel = "snapshot.storage.kubernetes.io/managed-by"
	// GroupMemberAnnotation on a VolumeSnapshotContent marks a member of a group
	// snapshot, and has the group's handle.
	GroupMemberAnnotation = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle"
	// SnapshotRequestAnnotation on a content has the name and the parameters, as
	// JSON, of the first call: further calls for the same snapshot repeat them, even if
	// the class has changed.
	SnapshotRequestAnnotation = "holdfast.dev/snapshot-request"
	// DeleteWithoutSecretAnnotation ("true"), written by an administrator, permits a
	// deletion without its secret.
	DeleteWithoutSecretAnnotation = "holdfast.dev/delete-without-secret"
)

// Secret returns the secret that a content's annotations name, nil without one. Half a pair
// is an error.
func (k SnapshotKeys) Secret(annotations map[string]string) (*corev1.SecretReference, error) {
	template, err := secretPair(annotations, k.SecretName, k.SecretNamespace)
	if err != nil {
		return nil, fmt.Errorf("annotations %s and %s must both exist and not be empty", k.SecretName, k.SecretNamespace)
	}
	if template == (SecretTemplate{}) {
		return nil, nil
	}
	return &corev1.SecretReference{Name: template.Name, Namespace: template.Namespace}, nil
}

// Naming is how the driver's snapshots are named: Prefix, a dash, and the UID
// of the user's object.
type Naming struct {
	// Prefix is "" for the default of the kind.
	Prefix string
	// UIDLength truncates the UID, without its dashes, to that many characters; 0 or
	// less keeps it whole, with them.
	UIDLength int
}

// maximumName is the limit of CSI for names, in bytes (CSI spec 1.13, "Size Limits").
const maximumName = 128

// SnapshotName is the name of a VolumeSnapshot's snapshot.
func (n Naming) SnapshotName(uid types.UID) (string, error) { return n.name("snapshot", uid) }

// GroupSnapshotName is the name of a VolumeGroupSnapshot's snapshot.
func (n Naming) GroupSnapshotName(uid types.UID) (string, error) { return n.name("groupsnapshot", uid) }

func (n Naming) name(prefix string, uid types.UID) (string, error) {
	if uid == "" {
		return "", errors.New("the content is bound to no object yet: its reference has no uid")
	}
	if n.Prefix != "" {
		prefix = n.Prefix
	}
	text := string(uid)
	if n.UIDLength > 0 {
		text = strings.ReplaceAll(text, "-", "")
		text = text[:min(len(text), n.UIDLength)]
	}
	name := prefix + "-" + text
	if len(name) > maximumName {
		return "", fmt.Errorf("the snapshot's name %q has %d bytes; CSI allows %d: shorten the prefix",
			name, len(name), maximumName)
	}
	return name, nil
}

// SnapshotClass is a VolumeSnapshotClass or VolumeGroupSnapshotClass taken apart.
type SnapshotClass struct {
	// Parameters are the driver's: without Kubernetes' own keys.
	Parameters map[string]string
	// Inspect is the secret of the calls that inspect a snapshot, with templates.
	Inspect SecretTemplate
}

// The stems of the secrets that classes of snapshots can name.
func snapshotSecretStems() []string {
	return []string{
		"snapshotter-secret", "snapshotter-list-secret", "group-snapshotter-secret", "group-snapshotter-get-secret",
	}
}

// ParseSnapshotClass takes a VolumeSnapshotClass' parameters apart. A key with
// ReservedPrefix that Kubernetes does not know is an error, and so is half of a
// secret's pair.
func ParseSnapshotClass(name string, parameters map[string]string) (SnapshotClass, error) {
	return parseSnapshotClass("VolumeSnapshotClass", name, parameters, "snapshotter-list-secret")
}

// ParseGroupSnapshotClass does the same for a VolumeGroupSnapshotClass.
func ParseGroupSnapshotClass(name string, parameters map[string]string) (SnapshotClass, error) {
	return parseSnapshotClass("VolumeGroupSnapshotClass", name, parameters, "group-snapshotter-get-secret")
}

func parseSnapshotClass(kind, name string, parameters map[string]string, inspect string) (SnapshotClass, error) {
	class := SnapshotClass{Parameters: map[string]string{}}
	reserved := map[string]string{}
	for key, value := range parameters {
		if strings.HasPrefix(key, ReservedPrefix) {
			reserved[key] = value
			continue
		}
		class.Parameters[key] = value
	}
	for _, stem := range snapshotSecretStems() {
		template, err := TakeSecret(reserved, ReservedPrefix+stem)
		if err != nil {
			return SnapshotClass{}, fmt.Errorf("%s %q: %w", kind, name, err)
		}
		if stem == inspect {
			class.Inspect = template
		}
	}
	if unknown := slices.Sorted(maps.Keys(reserved)); len(unknown) > 0 {
		return SnapshotClass{}, fmt.Errorf("%s %q: parameters[%s]: no such key; known with this prefix are -name and -namespace of %s",
			kind, name, unknown[0], strings.Join(snapshotSecretStems(), ", "))
	}
	return class, nil
}

// InspectSecret resolves the secret of the calls that inspect a snapshot; nil without one.
func (c SnapshotClass) InspectSecret(tokens Tokens) (*corev1.SecretReference, error) {
	if c.Inspect == (SecretTemplate{}) {
		return nil, nil
	}
	return c.Inspect.Resolve(tokens)
}

// SnapshotNames are the objects that a snapshot is taken for.
type SnapshotNames struct {
	Content, Namespace, Name string
}

// Tokens are the words that the secret's templates of a VolumeSnapshotClass may use.
func (n SnapshotNames) Tokens() Tokens { return n.tokens("volumesnapshot") }

// GroupTokens are those of a VolumeGroupSnapshotClass.
func (n SnapshotNames) GroupTokens() Tokens { return n.tokens("volumegroupsnapshot") }

// tokens: the namespace cannot depend on the name, which the snapshot's author
// chooses freely.
func (n SnapshotNames) tokens(kind string) Tokens {
	tokens := Tokens{Namespace: map[string]string{kind + "content.name": n.Content, kind + ".namespace": n.Namespace}}
	tokens.Name = maps.Clone(tokens.Namespace)
	tokens.Name[kind+".name"] = n.Name
	return tokens
}

// Metadata returns the parameters that --extra-create-metadata adds.
func (n SnapshotNames) Metadata() map[string]string { return n.metadata("volumesnapshot") }

// GroupMetadata is the same for a group snapshot.
func (n SnapshotNames) GroupMetadata() map[string]string { return n.metadata("volumegroupsnapshot") }

func (n SnapshotNames) metadata(kind string) map[string]string {
	return map[string]string{
		ReservedPrefix + kind + "/name":        n.Name,
		ReservedPrefix + kind + "/namespace":   n.Namespace,
		ReservedPrefix + kind + "content/name": n.Content,
	}
}
