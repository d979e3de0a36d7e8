package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/export"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

const exportHelp = `Write the manifests with which a cluster adopts claims of a host: a
PersistentVolume, bound beforehand, and a claim of the same name for each. The
driver and the volume's handle stay the same, so no data are moved.

The volumes are marked Retain, so that the deletion of a new claim does not delete
data. Objects that cannot move, and the steps to do by hand, are written to
standard error. Secrets are not exported: a host never returns them. Nor are ConfigMaps, which
no volume refers to.

The host keeps its own objects. Let only one of the two use a volume.`

// exportFlags are the flags of the command export.
type exportFlags struct {
	host    hostClient
	all     bool
	output  string
	options export.Options
}

func newExportCommand() *cobra.Command {
	var f exportFlags
	command := &cobra.Command{
		Use:   "export pvc/NAME… | --all",
		Short: "Write manifests with which a cluster adopts a host's volumes",
		Long:  exportHelp,
		Example: `  holdfast export pvc/data -o data.yaml
  holdfast export --all --node-name worker-3 --classes | kubectl apply -f -`,
		Args: arguments(cobra.ArbitraryArgs),
		RunE: func(command *cobra.Command, given []string) error { return f.run(command, given) },
	}
	flags := command.Flags()
	f.host.bind(flags)
	f.host.bindNamespace(flags)
	flags.BoolVar(&f.all, "all", false, "export the claims of all namespaces")
	flags.StringVarP(&f.output, "output-file", "o", "-", "`FILE` to write, - for standard output")
	flags.StringVar(&f.options.NodeName, "node-name", "",
		"`NAME` of the cluster's node that this machine becomes: without it, volumes on this machine are not exported")
	flags.BoolVar(&f.options.Classes, "classes", false, "export the volumes' CSIDriver objects and classes, too")
	flags.BoolVar(&f.options.Snapshots, "snapshots", false, "export the claims' snapshots, too")
	f.host.completeFlags(command)
	command.ValidArgsFunction = f.host.completeNamed("pvc")
	return command
}

func (f *exportFlags) run(command *cobra.Command, given []string) error {
	if f.all == (len(given) > 0) {
		return usageErrorf("say which claims, pvc/NAME…, or --all")
	}
	for _, word := range given {
		kind, name, both := strings.Cut(word, "/")
		if known, ok := tableKindNamed(kind); !both || !ok || known.kind.Kind != "PersistentVolumeClaim" {
			return usageErrorf("%q: want pvc/NAME", word)
		}
		if err := checkNames([]string{name}); err != nil {
			return err
		}
		f.options.Claims = append(f.options.Claims, store.Key(f.host.namespace, name))
	}
	client := f.host.dial()
	defer client.Close()
	source, err := readSource(command.Context(), client)
	if err != nil {
		return err
	}
	result, err := export.Build(source, f.options)
	if err != nil {
		return err
	}
	for _, text := range append(result.Left, result.Warnings...) {
		_, _ = fmt.Fprintln(command.ErrOrStderr(), printable(text))
	}
	if len(result.Objects) > 0 {
		if err := f.write(command, result.Objects); err != nil {
			return err
		}
	}
	if len(result.Left) > 0 && (!f.all || len(result.Objects) == 0) {
		return fmt.Errorf("%d of the claims were not exported", len(result.Left))
	}
	return nil
}

// readSource reads all objects that an export may need.
func readSource(ctx context.Context, client *api.Client) (source export.Source, err error) {
	for _, kind := range store.Kinds() {
		if store.IsSealed(kind) {
			continue
		}
		list, err := client.List(ctx, kind, api.ListOptions{})
		if err != nil {
			return source, fmt.Errorf("read the host's %s: %w", kind.Resource, err)
		}
		for _, object := range list.Items {
			sortInto(&source, object)
		}
	}
	return source, nil
}

func sortInto(source *export.Source, object store.Object) {
	switch o := object.(type) {
	case *corev1.Namespace:
		source.Namespaces = append(source.Namespaces, o)
	case *storagev1.CSIDriver:
		source.Drivers = append(source.Drivers, o)
	case *storagev1.CSINode:
		source.Nodes = append(source.Nodes, o)
	case *storagev1.StorageClass:
		source.Classes = append(source.Classes, o)
	case *storagev1.VolumeAttributesClass:
		source.AttributesClasses = append(source.AttributesClasses, o)
	case *snapshotv1.VolumeSnapshotClass:
		source.SnapshotClasses = append(source.SnapshotClasses, o)
	case *corev1.PersistentVolume:
		source.Volumes = append(source.Volumes, o)
	case *corev1.PersistentVolumeClaim:
		source.Claims = append(source.Claims, o)
	case *corev1.Pod:
		source.Pods = append(source.Pods, o)
	case *snapshotv1.VolumeSnapshot:
		source.Snapshots = append(source.Snapshots, o)
	case *snapshotv1.VolumeSnapshotContent:
		source.Contents = append(source.Contents, o)
	}
}

func (f *exportFlags) write(command *cobra.Command, objects []store.Object) error {
	text, err := export.Encode(objects)
	if err != nil {
		return err
	}
	if cmp.Or(f.output, "-") == "-" {
		_, err = command.OutOrStdout().Write(text)
		return err
	}
	if err := os.WriteFile(f.output, text, 0o600); err != nil {
		return fmt.Errorf("write the manifests: %w", err)
	}
	return nil
}
