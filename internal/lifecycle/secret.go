package lifecycle

import "github.com/holdfast-csi/holdfast/internal/claim"

// WithoutSecret reports whether a call that deletes or detaches is made although its
// secret does not exist; annotations are those of the object that names the secret.
// Only an administrator decides that. A driver that is called without its credentials
// may answer that nothing exists or is attached: the storage would be left behind, or
// the volume attached to two nodes. external-attacher and csi-snapshotter wait, too.
func WithoutSecret(annotations map[string]string) bool {
	return annotations[claim.DeleteWithoutSecretAnnotation] == "true"
}
