package cli

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// snapshotPoll is the time between two reads of a snapshot that is awaited.
const snapshotPoll = 500 * time.Millisecond

// clusterSnapshot are the flags of 'kubectl holdfast snapshot'.
type clusterSnapshot struct {
	target  target
	class   string
	wait    bool
	timeout time.Duration
}

func newClusterSnapshotCommand() *cobra.Command {
	s := clusterSnapshot{target: target{plugin: true}}
	command := &cobra.Command{
		Use:   "snapshot CLAIM [NAME]",
		Short: "Make a snapshot of a claim's volume",
		Long: `Make a VolumeSnapshot of a claim. Without NAME, the cluster appends a random suffix to
the claim's name. It prints the name.`,
		Example: `  kubectl holdfast snapshot data before-upgrade --wait
  kubectl holdfast snapshot pvc/data -n shop`,
		Args: arguments(cobra.RangeArgs(1, 2)),
		RunE: func(command *cobra.Command, given []string) error {
			name := ""
			if len(given) > 1 {
				name = trimKind(given[1], "vs", "snapshot", "volumesnapshot")
			}
			return s.run(command, trimKind(given[0], "pvc"), name)
		},
	}
	flags := command.Flags()
	s.target.bind(flags)
	s.target.host.bindNamespace(flags)
	flags.StringVar(&s.class, "class", "", "`NAME` of the VolumeSnapshotClass (default: the driver's default class)")
	flags.BoolVar(&s.wait, "wait", false, "end when the snapshot is ready to use")
	flags.DurationVar(&s.timeout, "timeout", 5*time.Minute, "longest time of --wait")
	return command
}

func (s *clusterSnapshot) run(command *cobra.Command, claim, name string) error {
	ctx := command.Context()
	config, namespace, err := s.target.load(command)
	if err != nil {
		return err
	}
	clients, err := cluster.NewClients(config, kubectlPlugin)
	if err != nil {
		return err
	}
	// A snapshot of no claim is accepted, and waits for ever.
	_, err = clients.Core.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("PersistentVolumeClaim %q does not exist in namespace %s", claim, namespace)
	case err != nil:
		return fmt.Errorf("read PersistentVolumeClaim %q of namespace %s: %w", claim, namespace, err)
	}
	snapshot := newSnapshot(namespace, name, claim, s.class)
	if name == "" {
		snapshot.GenerateName = claim + "-"
	}
	snapshots := clients.Snapshots.SnapshotV1()
	if snapshot, err = snapshots.VolumeSnapshots(namespace).Create(ctx, snapshot, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a VolumeSnapshot of claim %q in namespace %s: %w", claim, namespace, err)
	}
	command.Printf("volumesnapshot.snapshot.storage.k8s.io/%s created\n", snapshot.Name)
	if !s.wait {
		return nil
	}
	return s.await(ctx, snapshots, snapshot)
}

// await returns when the snapshot is ready. An error of the snapshot is not the end: its
// controller tries again.
func (s *clusterSnapshot) await(ctx context.Context, snapshots api.SnapshotV1, made *snapshotv1.VolumeSnapshot) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for said := "the snapshot controller has not answered"; ; {
		snapshot, err := snapshots.VolumeSnapshots(made.Namespace).Get(ctx, made.Name, metav1.GetOptions{})
		switch {
		case ctx.Err() != nil: // below
		case err != nil:
			return fmt.Errorf("read VolumeSnapshot %q of namespace %s: %w", made.Name, made.Namespace, err)
		case snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse:
			return nil
		case snapshot.Status != nil && snapshot.Status.Error != nil && snapshot.Status.Error.Message != nil:
			said = *snapshot.Status.Error.Message
		}
		if concurrency.Sleep(ctx, snapshotPoll) != nil {
			return fmt.Errorf("VolumeSnapshot %q of namespace %s is not ready: %s; it remains, and 'kubectl holdfast why snapshot/%s' explains it",
				made.Name, made.Namespace, said, made.Name)
		}
	}
}
