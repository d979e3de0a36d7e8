package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
)

// LocalDriver is the name of the backend local's driver.
const LocalDriver = "local.holdfast.dev"

// readyTimeout is how long the pods of a release get if Options have no Timeout, on a
// machine with other work.
const readyTimeout = 3 * time.Minute

// registeredPoll is the interval of reading a node's drivers.
const registeredPoll = 200 * time.Millisecond

// Options name the installed program and its source.
type Options struct {
	// Root is the directory of this repository, with bin/helm and the chart.
	Root string
	// Image is imported on every node.
	Image Image
	// Release and Namespace are "holdfast" and "holdfast-system" if empty.
	Release, Namespace string
	// Driver is the CSI driver name that nodes will know; LocalDriver if empty.
	Driver string
	// Values go to helm as --set NAME=VALUE each.
	Values []string
	// Timeout is how long the pods of the release get.
	Timeout time.Duration
}

// Deployment is a release on a cluster.
type Deployment struct {
	Cluster *cluster.Cluster
	Options Options
}

// Install imports the image on all nodes, installs the chart and waits until
// the driver can be used on each node.
func Install(ctx context.Context, c *cluster.Cluster, o Options) (*Deployment, error) {
	o.Release = orDefault(o.Release, "holdfast")
	o.Namespace = orDefault(o.Namespace, "holdfast-system")
	o.Driver = orDefault(o.Driver, LocalDriver)
	o.Timeout = cmp.Or(o.Timeout, readyTimeout)
	d := &Deployment{Cluster: c, Options: o}
	if err := c.ImportImage(ctx, o.Image.Archive); err != nil {
		return nil, err
	}
	return d, d.Upgrade(ctx, o.Image, o.Values...)
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// Upgrade brings the release to an image that the nodes have, with values that
// replace all earlier ones, and waits until each node has the new pods.
func (d *Deployment) Upgrade(ctx context.Context, image Image, values ...string) error {
	if err := d.Apply(ctx, image, values...); err != nil {
		return err
	}
	return d.WaitReady(ctx)
}

// Apply is Upgrade without the waiting.
func (d *Deployment) Apply(ctx context.Context, image Image, values ...string) error {
	args := []string{
		"upgrade", "--install", d.Options.Release, filepath.Join(d.Options.Root, "deploy/helm/holdfast"),
		"--namespace", d.Options.Namespace, "--create-namespace",
		"--set-string", "image.repository=" + image.Repository, "--set-string", "image.tag=" + image.Tag,
	}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return d.helm(ctx, args...)
}

// Uninstall removes the release and waits until its pods have ended.
func (d *Deployment) Uninstall(ctx context.Context) error {
	timeout := d.Options.Timeout.String()
	if err := d.helm(ctx, "uninstall", d.Options.Release, "--namespace", d.Options.Namespace, "--wait", "--timeout", timeout); err != nil {
		return err
	}
	_, err := d.Kubectl(ctx, "wait", "--for=delete", "pod", "--selector", d.Selector(), "--timeout="+timeout)
	return d.explain(ctx, err)
}

// Selector finds the release's pods.
func (d *Deployment) Selector() string { return "app.kubernetes.io/instance=" + d.Options.Release }

// WaitReady waits until the release's pods are those of its newest definition
// and ready, and until every node has the driver.
func (d *Deployment) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.Options.Timeout)
	defer cancel()
	names, err := d.Kubectl(ctx, "get", "daemonset,deployment", "--selector", d.Selector(), "-o", "name")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(names) {
		if _, err := d.Kubectl(ctx, "rollout", "status", name, "--timeout", d.Options.Timeout.String()); err != nil {
			return d.explain(ctx, err)
		}
	}
	var registered []error
	for _, node := range d.Cluster.Nodes {
		registered = append(registered, d.waitRegistered(ctx, node))
	}
	return d.explain(ctx, errors.Join(registered...))
}

// waitRegistered waits until the kubelet has added the driver to the CSINode.
// Between two registrations the list of drivers is null, for which `kubectl
// wait` gives up.
func (d *Deployment) waitRegistered(ctx context.Context, node string) error {
	for {
		names, err := d.Kubectl(ctx, "get", "csinode", node, "-o", "jsonpath={.spec.drivers[*].name}")
		if err == nil && slices.Contains(strings.Fields(names), d.Options.Driver) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("deployment: the kubelet of %s knows %q, not %s: %w", node, names, d.Options.Driver, cmp.Or(err, ctx.Err()))
		case <-time.After(registeredPoll):
		}
	}
}

// Kubectl is the cluster's, in the release's namespace.
func (d *Deployment) Kubectl(ctx context.Context, args ...string) (string, error) {
	return d.Cluster.Kubectl(ctx, append([]string{"--namespace", d.Options.Namespace}, args...)...)
}

func (d *Deployment) helm(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(d.Options.Root, "bin/helm"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.Cluster.Kubeconfig)
	if output, err := cmd.CombinedOutput(); err != nil {
		return d.explain(ctx, fmt.Errorf("deployment: helm %s: %w: %s", args[0], err, output))
	}
	return nil
}

// explain adds the state and the logs of the release's pods to an error.
func (d *Deployment) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\n%s", err, d.Report(ctx))
}

// Report describes the release's pods: their state, their events, and the last
// lines of their logs, also of the containers before.
func (d *Deployment) Report(ctx context.Context) string {
	// Also after ctx's deadline.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var text strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "--selector", d.Selector(), "-o", "wide"},
		{"describe", "pods", "--selector", d.Selector()},
		{"logs", "--selector", d.Selector(), "--prefix", "--tail=60"},
		{"logs", "--selector", d.Selector(), "--prefix", "--tail=20", "--previous"},
	} {
		output, err := d.Kubectl(ctx, args...)
		fmt.Fprintf(&text, "--- kubectl %s\n%s", strings.Join(args, " "), output)
		if err != nil && output == "" {
			fmt.Fprintf(&text, "%v\n", err)
		}
	}
	return text.String()
}
