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

// timeout limits one wait for the cluster, on a machine with other load.
const timeout = 2 * time.Minute

// machineTimeout is that limit where the nodes are machines that an emulator may run.
const machineTimeout = 20 * time.Minute

// scene is one test's namespace on the shared cluster.
type scene struct {
	*suite
	*testing.T
	namespace string
	// timeout limits the waits of this test.
	timeout time.Duration
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// enter creates the namespace. At the end of the test everything in it is deleted,
// including the volumes of its claims.
func (s *suite) enter(t *testing.T) *scene {
	t.Helper()
	_, name, _ := strings.Cut(t.Name(), "/")
	_, name, _ = strings.Cut(name, "/")
	name = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if len(name) > 50 {
		name = strings.Trim(name[:50], "-")
	}
	return s.enterNamespace(t, name)
}

func (s *suite) enterNamespace(t *testing.T, name string) *scene {
	t.Helper()
	c := &scene{suite: s, T: t, namespace: name, timeout: s.timeout}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(t)(s.api.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}))
	t.Cleanup(c.leave)
	return c
}

// neighbour creates another namespace of the test. It is deleted before the test's own.
func (c *scene) neighbour(suffix string) *scene {
	c.Helper()
	return c.enterNamespace(c.T, c.namespace+"-"+suffix)
}

// must ends the test if a call that is not under test fails.
func must(t testing.TB) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// leave prints the state of a failed test, then deletes the namespace.
func (c *scene) leave() {
	ctx := context.WithoutCancel(c.Context())
	if c.Failed() {
		c.Log(c.state(ctx))
	}
	volumes := c.volumes(ctx)
	err := c.clear(ctx)
	if err == nil {
		err = wait(ctx, c.timeout, func() error { return c.gone(ctx, volumes) })
	}
	if err != nil {
		c.Errorf("the namespace is not deleted: %v\n%s", err, c.state(ctx))
	}
}

// clear deletes the namespace if it exists, claims and pods first: a snapshot stays while
// a pending claim has it as its source.
func (c *scene) clear(ctx context.Context) error {
	for _, kinds := range []string{"statefulset,pod,persistentvolumeclaim", "volumegroupsnapshot,volumesnapshot"} {
		if _, err := c.kubectl(ctx, "delete", kinds, "--all", "--timeout="+c.timeout.String()); err != nil {
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

// state describes the objects that help to understand a failure.
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

// wait calls ask until it returns nil.
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

// eventually calls ask until it returns nil, and ends the test after its timeout.
func (c *scene) eventually(ask func() error) {
	c.Helper()
	if err := wait(c.Context(), c.timeout, ask); err != nil {
		c.Fatal(err)
	}
}
