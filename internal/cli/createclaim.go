package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// claimCreation are the flags of create pvc and restore.
type claimCreation struct {
	creation
	size, class, mode string
	access            []string
	snapshot, claim   string
}

func newCreateClaimCommand() *cobra.Command {
	var c claimCreation
	command := &cobra.Command{
		Use:     "pvc NAME --size SIZE",
		Aliases: []string{"claim", "persistentvolumeclaim"},
		Short:   "Make a claim, for a new volume or a copy of one",
		Long: `Make a claim. A claim without --class has the default class. The copy of a snapshot or
of another claim has the size and the class of its source, unless they are given.`,
		Example: `  holdfast create pvc data --size 10Gi
  holdfast create pvc copy --from-pvc data --wait
  holdfast create pvc data --size 10Gi --dry-run=client -o yaml > claim.yaml`,
		Args: one("the name of the claim"),
		RunE: func(command *cobra.Command, given []string) error { return c.run(command, given[0]) },
	}
	c.bindAll(command)
	flags := command.Flags()
	c.bindLabels(flags)
	c.bindClaim(command)
	flags.StringVar(&c.snapshot, "from-snapshot", "", "`NAME` of the VolumeSnapshot to restore")
	flags.StringVar(&c.claim, "from-pvc", "", "`NAME` of the claim to copy")
	return command
}

func newRestoreCommand() *cobra.Command {
	var c claimCreation
	command := &cobra.Command{
		Use:     "restore NAME --from SNAPSHOT",
		Short:   "Make a claim of a snapshot",
		Long:    `Make a claim whose volume is restored from a snapshot; 'create pvc --from-snapshot' is the same.`,
		Example: "  holdfast restore data-again --from before-upgrade --wait",
		Args:    one("the name of the new claim"),
		RunE: func(command *cobra.Command, given []string) error {
			if c.snapshot == "" {
				return usageErrorf("--from SNAPSHOT is not given")
			}
			return c.run(command, given[0])
		},
	}
	c.bindAll(command)
	c.bindLabels(command.Flags())
	c.bindClaim(command)
	command.Flags().StringVar(&c.snapshot, "from", "", "`NAME` of the VolumeSnapshot")
	return command
}

func (c *claimCreation) bindClaim(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&c.size, "size", "", "`SIZE` of the volume, such as 10Gi")
	flags.StringVar(&c.class, "class", "", "`NAME` of the StorageClass (default: that of the source, else the default class)")
	flags.StringSliceVar(&c.access, "access-mode", []string{"RWO"}, "`MODES`: RWO, ROX, RWX, RWOP or their long names")
	flags.StringVar(&c.mode, "volume-mode", "", "Filesystem or Block (default: Filesystem)")
	completeValues(command, "volume-mode", []string{"Filesystem", "Block"})
	completeValues(command, "access-mode", []string{"RWO", "ROX", "RWX", "RWOP"})
}

func (c *claimCreation) run(command *cobra.Command, name string) error {
	pvc, err := c.object(trimKind(name, "pvc", "persistentvolumeclaim"))
	if err != nil {
		return err
	}
	client := c.dial()
	defer client.Close()
	if err := c.inherit(command.Context(), client, pvc); err != nil {
		return err
	}
	kind, _ := kindNamed("PersistentVolumeClaim")
	return c.write(command, client, kind, pvc, true)
}

// object is the claim as the flags say.
func (c *claimCreation) object(name string) (*corev1.PersistentVolumeClaim, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := checkNames([]string{name}); err != nil {
		return nil, err
	}
	given, err := c.label()
	if err != nil {
		return nil, err
	}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace, Labels: given}}
	if c.class != "" {
		pvc.Spec.StorageClassName = &c.class
	}
	if err := c.modes(&pvc.Spec); err != nil {
		return nil, err
	}
	snapshot, source := trimKind(c.snapshot, "vs", "snapshot", "volumesnapshot"), trimKind(c.claim, "pvc")
	switch {
	case snapshot != "" && source != "":
		return nil, usageErrorf("either --from-snapshot or --from-pvc, not both")
	case snapshot != "":
		group := snapshotv1.GroupName
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: snapshot}
	case source != "":
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source}
	case c.size == "":
		return nil, usageErrorf("--size SIZE is not given")
	}
	if c.size == "" {
		return pvc, nil
	}
	size, err := parseSize("--size", c.size)
	setSize(pvc, size)
	return pvc, err
}

func setSize(pvc *corev1.PersistentVolumeClaim, size resource.Quantity) {
	pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
}

func (c *claimCreation) modes(spec *corev1.PersistentVolumeClaimSpec) error {
	for _, word := range c.access {
		mode, ok := accessModeNamed(word)
		if !ok {
			return usageErrorf("--access-mode %q is none of RWO, ROX, RWX and RWOP", word)
		}
		spec.AccessModes = append(spec.AccessModes, mode)
	}
	for _, mode := range []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock} {
		if strings.EqualFold(c.mode, string(mode)) {
			spec.VolumeMode = &mode
			return nil
		}
	}
	if c.mode != "" {
		return usageErrorf("--volume-mode %q is neither Filesystem nor Block", c.mode)
	}
	return nil
}

// accessModeNamed reads an access mode in its short or its long form.
func accessModeNamed(word string) (corev1.PersistentVolumeAccessMode, bool) {
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany,
		corev1.ReadWriteMany, corev1.ReadWriteOncePod} {
		short := accessModes([]corev1.PersistentVolumeAccessMode{mode})
		if strings.EqualFold(word, string(mode)) || strings.EqualFold(word, short) {
			return mode, true
		}
	}
	return "", false
}

// inherit sets the size and the class of a copy that are not given to its source's.
func (c *claimCreation) inherit(ctx context.Context, client *api.Client, pvc *corev1.PersistentVolumeClaim) error {
	source := pvc.Spec.DataSource
	hasSize := len(pvc.Spec.Resources.Requests) > 0
	if source == nil || hasSize && pvc.Spec.StorageClassName != nil {
		return nil
	}
	if c.dry == dryRunClient {
		if !hasSize {
			return usageErrorf("--size is needed with --dry-run=client: no host is asked for the size of the source")
		}
		return nil
	}
	claimName := source.Name
	if source.Kind == "VolumeSnapshot" {
		snapshot, err := readObject[*snapshotv1.VolumeSnapshot](ctx, client, "VolumeSnapshot", c.namespace, source.Name)
		if err != nil {
			return err
		}
		claimName = text(snapshot.Spec.Source.PersistentVolumeClaimName)
		if status := snapshot.Status; !hasSize && status != nil && status.RestoreSize != nil {
			setSize(pvc, *status.RestoreSize)
		}
	}
	return c.inheritClaim(ctx, client, pvc, claimName)
}

// inheritClaim copies what is missing from a claim, which may be gone when a snapshot
// of it is restored.
func (c *claimCreation) inheritClaim(
	ctx context.Context, client *api.Client, pvc *corev1.PersistentVolumeClaim, name string,
) error {
	if name != "" {
		from, err := readObject[*corev1.PersistentVolumeClaim](ctx, client, "PersistentVolumeClaim", c.namespace, name)
		if err != nil && (pvc.Spec.DataSource.Kind != "VolumeSnapshot" || !errors.Is(err, api.ErrNotFound)) {
			return err
		}
		if err == nil {
			if pvc.Spec.StorageClassName == nil {
				pvc.Spec.StorageClassName = from.Spec.StorageClassName
			}
			if capacity, ok := from.Status.Capacity[corev1.ResourceStorage]; ok && len(pvc.Spec.Resources.Requests) == 0 &&
				pvc.Spec.DataSource.Kind == "PersistentVolumeClaim" {
				setSize(pvc, capacity)
			}
		}
	}
	if len(pvc.Spec.Resources.Requests) == 0 {
		return usageErrorf("the size of %s %q is not known yet: give --size", pvc.Spec.DataSource.Kind, pvc.Spec.DataSource.Name)
	}
	return nil
}

// readObject reads an object of a known type.
func readObject[T store.Object](
	ctx context.Context, client *api.Client, kindName, namespace, name string,
) (object T, err error) {
	kind, _ := kindNamed(kindName)
	found, err := client.Get(ctx, kind, namespace, name)
	if err != nil {
		return object, err
	}
	object, ok := found.(T)
	if !ok {
		return object, fmt.Errorf("the host answered with a %T for %s %q", found, kindName, name)
	}
	return object, nil
}
