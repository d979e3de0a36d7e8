package cli

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newCreateSnapshotCommand() *cobra.Command {
	var c creation
	var of, class string
	command := &cobra.Command{
		Use:     "snapshot NAME --of CLAIM",
		Aliases: []string{"vs", "volumesnapshot"},
		Short:   "Make a snapshot of a claim's volume",
		Example: "  holdfast create snapshot before-upgrade --of data --wait",
		Args:    one("the name of the snapshot"),
		RunE: func(command *cobra.Command, given []string) error {
			if of == "" {
				return usageErrorf("--of CLAIM is not given")
			}
			return c.snapshot(command, trimKind(given[0], "vs", "snapshot", "volumesnapshot"), trimKind(of, "pvc"), class)
		},
	}
	c.bindAll(command)
	c.bindLabels(command.Flags())
	command.Flags().StringVar(&of, "of", "", "`NAME` of the claim")
	command.Flags().StringVar(&class, "class", "", "`NAME` of the VolumeSnapshotClass (default: the driver's default class)")
	return command
}

func (c *creation) snapshot(command *cobra.Command, name, of, class string) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := checkNames([]string{name, of}); err != nil {
		return err
	}
	given, err := c.label()
	if err != nil {
		return err
	}
	client := c.dial()
	defer client.Close()
	kind, _ := kindNamed("VolumeSnapshot")
	snapshot := newSnapshot(c.namespace, name, of, class)
	snapshot.Labels = given
	return c.write(command, client, kind, snapshot, true)
}

// newSnapshot is a snapshot of a claim; class "" is the driver's default one.
func newSnapshot(namespace, name, of, class string) *snapshotv1.VolumeSnapshot {
	snapshot := &snapshotv1.VolumeSnapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &of}},
	}
	if class != "" {
		snapshot.Spec.VolumeSnapshotClassName = &class
	}
	return snapshot
}
