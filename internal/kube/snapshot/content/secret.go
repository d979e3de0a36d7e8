package content

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Secret reads the values for the calls that create; none if the content names
// no secret.
func Secret(
	ctx context.Context, env *cluster.Env, keys claim.SnapshotKeys, annotations map[string]string,
) (map[string]string, error) {
	reference, err := keys.Secret(annotations)
	if err != nil {
		return nil, err
	}
	return env.Secret(ctx, reference)
}

// DeletionSecret reads the values for the call that deletes. A missing
// secret delays the deletion, unless the content has
// claim.DeleteWithoutSecretAnnotation: a driver that is called without its credentials
// may answer that the snapshot does not exist.
func DeletionSecret(
	ctx context.Context, env *cluster.Env, keys claim.SnapshotKeys, annotations map[string]string,
) (map[string]string, error) {
	values, err := Secret(ctx, env, keys, annotations)
	if err == nil || !apierrors.IsNotFound(err) {
		return values, err
	}
	if lifecycle.WithoutSecret(annotations) {
		return nil, nil
	}
	return nil, fmt.Errorf("%w; create it again, or annotate the content with %s=true to delete without it", err, claim.DeleteWithoutSecretAnnotation)
}

// InspectSecret reads the values for the calls that ask about a snapshot: those of
// the class' own secret, or those for creating if it names none.
func InspectSecret(ctx context.Context, env *cluster.Env, inspect *corev1.SecretReference, keys claim.SnapshotKeys, annotations map[string]string) (map[string]string, error) {
	if inspect != nil {
		return env.Secret(ctx, inspect)
	}
	return Secret(ctx, env, keys, annotations)
}
