package cli

import (
	"errors"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host"
	"github.com/holdfast-csi/holdfast/internal/host/api"
)

func newResizeCommand() *cobra.Command {
	var c creation
	command := &cobra.Command{
		Use:   "resize pvc/NAME SIZE",
		Short: "Let the volume of a claim grow",
		Long: `Let the volume of a claim grow to a size. A volume cannot shrink. The filesystem of a
claim that no pod uses grows when one does; --wait waits for that, too.

A manifest of the claim has to be changed as well: an apply of the smaller size fails.`,
		Example: "  holdfast resize pvc/data 20Gi --wait",
		Args: func(_ *cobra.Command, given []string) error {
			if len(given) != 2 {
				return usageErrorf("say which claim and its new size: pvc/NAME SIZE")
			}
			return nil
		},
		RunE:              func(command *cobra.Command, given []string) error { return c.resize(command, given[0], given[1]) },
		ValidArgsFunction: c.completeNamed("pvc"),
	}
	c.bindAll(command)
	return command
}

// resizeAttempts bounds the repetitions when controllers change the claim meanwhile.
const resizeAttempts = 10

func (c *creation) resize(command *cobra.Command, name, text string) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.dry == dryRunClient {
		return usageErrorf("--dry-run=client: only a host knows the claim; use --dry-run")
	}
	name = trimKind(name, "pvc", "persistentvolumeclaim")
	if err := checkNames([]string{name}); err != nil {
		return err
	}
	size, err := parseSize("the size", text)
	if err != nil {
		return err
	}
	client := c.dial()
	defer client.Close()
	for range resizeAttempts {
		if err = c.tryResize(command, client, name, size); !errors.Is(err, api.ErrConflict) {
			return err
		}
	}
	return err
}

// tryResize applies the claim as it is, with another size. Labels and annotations of
// others than apply stay theirs.
func (c *creation) tryResize(command *cobra.Command, client *api.Client, name string, size resource.Quantity) error {
	current, err := readObject[*corev1.PersistentVolumeClaim](command.Context(), client, "PersistentVolumeClaim",
		c.namespace, name)
	if err != nil {
		return err
	}
	labels, annotations := host.AppliedMetadata(current)
	desired := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: current.Namespace, Name: current.Name, UID: current.UID, ResourceVersion: current.ResourceVersion,
			Labels: labels, Annotations: annotations,
		},
		Spec: *current.Spec.DeepCopy(),
	}
	setSize(desired, size)
	kind, _ := kindNamed("PersistentVolumeClaim")
	return c.write(command, client, kind, desired, false)
}
