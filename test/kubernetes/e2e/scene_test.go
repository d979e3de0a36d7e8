package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patience is how long the cluster gets for one thing, on a machine with other
// work. What takes longer fails.
const patience = 2 * time.Minute

// scene is one test's place: a namespace on the shared cluster.
type scene struct {
	*suite
	*testing.T
	namespace string
	// patience is that of this test, if it needs more.
	patience time.Duration
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// enter makes the namespace. When the test has ended everything in it is
// deleted, and the volumes of its claims with it.
func (s *suite) enter(t *testing.T) *scene {
	t.Helper()
	_, name, _ := strings.Cut(t.Name(), "/")
	_, name, _ = strings.Cut(name, "/")
	name = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if len(name) > 50 {
		name = strings.Trim(name[:50], "-")
	}
	c := &scene{suite: s, T: t, namespace: name, patience: patience}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(t)(s.api.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}))
	t.Cleanup(c.leave)
	return c
}

// must makes an error of a call that is not under test the end of the test.
func must(t testing.TB) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// leave tells what a failed test leaves, then takes it away.
func (c *scene) leave() {
	ctx := context.WithoutCancel(c.Context())
	if c.Failed() {
		c.Log(c.state(ctx))
	}
	volumes := c.volumes(ctx)
	err := c.clear(ctx)
	if err == nil {
		err = wait(ctx, c.patience, func() error { return c.gone(ctx, volumes) })
	}
	if err != nil {
		c.Errorf("the namespace is not gone: %v\n%s", err, c.state(ctx))
	}
}

// clear deletes the namespace if it is there, claims and pods first: a snapshot
// stays as long as a claim that is to be made from it.
func (c *scene) clear(ctx context.Context) error {
	for _, kinds := range []string{"statefulset,pod,persistentvolumeclaim", "volumegroupsnapshot,volumesnapshot"} {
		if _, err := c.kubectl(ctx, "delete", kinds, "--all", "--timeout="+c.patience.String()); err != nil {
			return err
		}
	}
	err := c.api.CoreV1().Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// volumes are those of the namespace's claims, by name.
func (c *scene) volumes(ctx context.Context) map[string]bool {
	names := make(map[string]bool)
	list, err := c.api.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		c.Error(err)
		return names
	}
	for _, v := range list.Items {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == c.namespace {
			names[v.Name] = true
		}
	}
	return names
}

func (c *scene) gone(ctx context.Context, volumes map[string]bool) error {
	_, err := c.api.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return errors.Join(fmt.Errorf("namespace %s is there", c.namespace), err)
	}
	return c.volumesGone(ctx, volumes)
}

func (c *scene) volumesGone(ctx context.Context, volumes map[string]bool) error {
	for name := range volumes {
		if _, err := c.api.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(fmt.Errorf("volume %s is there", name), err)
		}
	}
	return nil
}

// state is what a person needs to understand a failure.
func (c *scene) state(ctx context.Context) string {
	var text strings.Builder
	for _, args := range [][]string{
		{"get", "pods,pvc,volumesnapshots,volumegroupsnapshots", "-o", "wide"},
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"describe", "pvc"},
		{"get", "pv,volumesnapshotcontents", "-o", "wide"},
	} {
		output, err := c.kubectl(ctx, args...)
		fmt.Fprintf(&text, "--- kubectl %s\n%s", strings.Join(args, " "), output)
		if err != nil {
			fmt.Fprintf(&text, "%v\n", err)
		}
	}
	return text.String() + c.deployment.Report(ctx)
}

// kubectl runs in the test's namespace.
func (c *scene) kubectl(ctx context.Context, args ...string) (string, error) {
	return c.cluster.Kubectl(ctx, append([]string{"--namespace", c.namespace}, args...)...)
}

// wait asks until there is no error.
func wait(ctx context.Context, limit time.Duration, ask func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-deadline.C:
			return fmt.Errorf("after %v: %w", limit, err)
		case <-tick.C:
		}
	}
}

// eventually fails the test when there is an error for longer than patience.
func (c *scene) eventually(ask func() error) {
	c.Helper()
	if err := wait(c.Context(), c.patience, ask); err != nil {
		c.Fatal(err)
	}
}
