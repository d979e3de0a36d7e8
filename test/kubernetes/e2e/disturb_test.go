package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
)

// steadyWriter is a script that writes until a write fails; it syncs each round before
// it counts the round.
const steadyWriter = "while dd if=/dev/urandom of=/data/file bs=64k count=16 conv=fsync && echo >>/data/rounds && sync; do :; done"

// writers write to a volume each, on both nodes.
func (c *scene) writers() *appsv1.StatefulSet {
	c.Helper()
	set := statefulSet("writers", 2)
	set.Spec.Template.Spec.Containers[0].Command[2] = steadyWriter
	must(c)(c.api.AppsV1().StatefulSets(c.namespace).Create(c.Context(), set, metav1.CreateOptions{}))
	for _, name := range writerNames {
		c.waitReady(name)
	}
	c.waitProgress()
	return set
}

var writerNames = []string{"writers-0", "writers-1"}

// waitProgress waits until each writer has done another round, from now on.
func (c *scene) waitProgress() {
	c.Helper()
	for _, name := range writerNames {
		var done string
		c.eventually(func() error {
			output, err := c.kubectl(c.Context(), "exec", name, "--", "sh", "-c", "cat /data/rounds 2>/dev/null | wc -l")
			done = strings.TrimSpace(output)
			return err
		})
		c.eventually(func() error { return c.roundsAfter(name, done) })
	}
}

// expectUndisturbed fails the test if a writer restarted: a writer ends with the first
// write that fails.
func (c *scene) expectUndisturbed() {
	c.Helper()
	for _, name := range writerNames {
		pod, err := c.getPod(name)
		if err != nil {
			c.Error(err)
			continue
		}
		if restarts := pod.Status.ContainerStatuses[0].RestartCount; restarts != 0 {
			c.Errorf("%s was started again %d times", name, restarts)
		}
	}
}

func (c *scene) outlivesTheKubelet() {
	c.writers()
	for _, node := range c.cluster.Nodes {
		if err := c.cluster.RestartKubelet(c.Context(), node); err != nil {
			c.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	if err := errors.Join(c.cluster.WaitReady(ctx), c.deployment.WaitReady(ctx)); err != nil {
		c.Fatal(err)
	}
	c.waitProgress()
	c.expectUndisturbed()
	// The kubelet still knows which volumes to unmount and to mount.
	c.removePod(writerNames[0])
	c.waitReady(writerNames[0])
	c.waitProgress()
}

// A pod whose volume is on a drained node waits for the node.
func (c *scene) waitsForItsDrainedNode() {
	c.makeClaim(newClaim("data", "64Mi"))
	node := c.run(newPod("writer", writeFile("/data/file", "8m")+" && "+idle, withClaim("data")))
	c.waitWritten("writer", "/data/file.sum")
	kubectl := func(args ...string) {
		c.Helper()
		if _, err := c.cluster.Kubectl(c.Context(), args...); err != nil {
			c.Fatal(err)
		}
	}
	c.Cleanup(func() {
		if _, err := c.cluster.Kubectl(context.WithoutCancel(c.Context()), "uncordon", node); err != nil {
			c.Error(err)
		}
	})
	kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+timeout.String())
	if _, err := c.getPod("writer"); !apierrors.IsNotFound(err) {
		c.Fatalf("the drained node still has its pod: %v", err)
	}
	c.makePod(newPod("reader", checkFile("/data/file")+" && "+idle, withClaim("data")))
	c.eventually(func() error {
		pod, err := c.getPod("reader")
		if err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return fmt.Errorf("the pod has no condition about its scheduling: %v", pod.Status.Conditions)
	})
	kubectl("uncordon", node)
	if got := c.waitReady("reader"); got != node {
		c.Errorf("the pod is on %s, its volume on %s", got, node)
	}
}

// A node loses its power. Its data is there after its restart, the other node works
// meanwhile, and volumes deleted meanwhile are deleted soon after the restart.
func (c *scene) comesBackWithItsNode() {
	lost, other := c.cluster.Nodes[1], c.cluster.Nodes[0]
	for _, name := range []string{"kept", "dropped"} {
		c.makeClaim(newClaim(name, "64Mi"))
	}
	again := func(spec *corev1.PodSpec) { spec.RestartPolicy = corev1.RestartPolicyAlways }
	c.run(newPod("keeper", "test -e /kept/file || { "+writeFile("/kept/file", "8m")+"; }; "+idle, withClaim("kept"), on(lost), again))
	c.run(newPod("dropper", idle, withClaim("dropped"), on(lost)))
	c.waitWritten("keeper", "/kept/file.sum")
	c.exec("keeper", "sync")
	dropped := c.volumeOf("dropped")
	if err := c.cluster.StopNode(c.Context(), lost); err != nil {
		c.Fatal(err)
	}
	started := false
	startAgain := func() {
		if started {
			return
		}
		started = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), timeout)
		defer cancel()
		if err := c.cluster.StartNode(ctx, lost); err != nil {
			c.Fatal(err)
		}
		if err := errors.Join(c.cluster.WaitReady(ctx), c.deployment.WaitReady(ctx)); err != nil {
			c.Fatal(err)
		}
	}
	c.Cleanup(startAgain)
	c.makeClaim(newClaim("elsewhere", "64Mi"))
	c.succeed(newPod("other", writeFile("/elsewhere/file", "1m"), withClaim("elsewhere"), on(other)))
	zero := int64(0)
	force := metav1.DeleteOptions{GracePeriodSeconds: &zero}
	if err := errors.Join(
		c.api.CoreV1().Pods(c.namespace).Delete(c.Context(), "dropper", force),
		c.api.CoreV1().PersistentVolumeClaims(c.namespace).Delete(c.Context(), "dropped", metav1.DeleteOptions{}),
	); err != nil {
		c.Fatal(err)
	}
	startAgain()
	c.waitReady("keeper")
	c.eventually(func() error {
		_, err := c.kubectl(c.Context(), "exec", "keeper", "--", "sh", "-c", checkFile("/kept/file"))
		return err
	})
	c.waitVolumeGone(dropped)
}

// The driver is upgraded while pods write and others are created.
func (c *scene) isUpgradedBelowWriters() {
	c.writers()
	next := c.deployment.Options.Image
	next.Tag += "-next"
	for _, node := range c.cluster.Nodes {
		if _, err := c.cluster.OnNode(c.Context(), node, "ctr", "--namespace", "k8s.io", "images", "tag", "--force",
			c.deployment.Options.Image.String(), next.String()); err != nil {
			c.Fatal(err)
		}
	}
	before := c.driverPods()
	upgraded := make(chan error, 1)
	go func() { upgraded <- c.deployment.Upgrade(c.Context(), next, "log.level=debug") }()
	var pods []string
	for i := 0; len(upgraded) == 0 && i < 20; i++ {
		name := fmt.Sprintf("during-%d", i)
		c.makeClaim(newClaim(name, "32Mi"))
		c.makePod(newPod(name, writeFile("/"+name+"/file", "1m")+" && "+idle, withClaim(name)))
		c.waitReady(name)
		pods = append(pods, name)
	}
	if err := <-upgraded; err != nil {
		c.Fatal(err)
	}
	c.Logf("%d pods were made during the upgrade", len(pods))
	for name := range c.driverPods() {
		if before[name] {
			c.Errorf("driver pod %s is of before the upgrade", name)
		}
	}
	c.waitProgress()
	c.expectUndisturbed()
	for _, name := range pods {
		c.waitWritten(name, "/"+name+"/file.sum")
		c.exec(name, checkFile("/"+name+"/file"))
	}
	c.restoreDriver()
}

// driverPods are the names of the release's pods.
func (c *scene) driverPods() map[string]bool {
	c.Helper()
	list, err := c.api.CoreV1().Pods(c.deployment.Options.Namespace).List(c.Context(), metav1.ListOptions{LabelSelector: c.deployment.Selector()})
	if err != nil {
		c.Fatal(err)
	}
	names := make(map[string]bool)
	for _, pod := range list.Items {
		names[pod.Name] = true
	}
	return names
}

// restoreDriver restores the values of the release.
func (c *scene) restoreDriver() {
	c.Helper()
	ctx := context.WithoutCancel(c.Context())
	if err := c.deployment.Upgrade(ctx, c.deployment.Options.Image, chartValues...); err != nil {
		c.Error(err)
	}
}

// trace is the file in which a driver records the failpoints that it reached. It is in
// the plugin's directory, which is the node's.
const trace = "failpoints"

// withFailpoints installs the driver with terms of package failpoint for all
// nodes, until the test ends or restores it.
func (c *scene) withFailpoints(terms string) {
	c.Helper()
	c.Cleanup(c.restoreDriver)
	for _, node := range c.cluster.Nodes {
		if err := os.RemoveAll(c.traceFile(node)); err != nil {
			c.Fatal(err)
		}
	}
	values := append([]string{
		"node.extraEnv[0].name=HOLDFAST_FAILPOINTS", "node.extraEnv[0].value=" + terms,
		"node.extraEnv[1].name=HOLDFAST_FAILPOINT_TRACE", "node.extraEnv[1].value=/csi/" + trace,
		"node.updateStrategy.rollingUpdate.maxUnavailable=100%",
	}, chartValues...)
	// The driver may exit before it is ready; the caller waits.
	if err := c.deployment.Apply(c.Context(), c.deployment.Options.Image, values...); err != nil {
		c.Fatal(err)
	}
}

// traceFile is the trace of a node's driver, seen from the machine.
func (c *scene) traceFile(node string) string {
	return filepath.Join(c.cluster.NodeRoot(node), "var/lib/kubelet/plugins", deployment.LocalDriver, trace)
}

// threeHundred is the number of pods that start at once.
const threeHundred = 300

// startAtOnce is given ten minutes: all containers are started by two cores.
func (c *scene) startAtOnce() {
	const limit = 10 * time.Minute
	inline := inlineVolume("16Mi")
	claimed := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: newClaim("", "16Mi").Spec},
	}}
	begun := time.Now()
	for i := range threeHundred {
		source := claimed
		if i%3 == 0 {
			source = inline
		}
		c.makePod(newPod(fmt.Sprintf("pod-%d", i), idle, withVolume("data", source), on(c.cluster.Nodes[i%2])))
	}
	if err := wait(c.Context(), limit, func() error { return c.allReady(threeHundred) }); err != nil {
		c.Fatal(err)
	}
	c.Logf("%d pods are ready after %v", threeHundred, time.Since(begun).Round(time.Second))
	begun = time.Now()
	if _, err := c.kubectl(c.Context(), "delete", "pods", "--all", "--wait=false"); err != nil {
		c.Fatal(err)
	}
	if err := wait(c.Context(), limit, func() error { return errors.Join(c.noPods(), c.empty(c.Context())) }); err != nil {
		c.Fatal(err)
	}
	c.Logf("they and their volumes are gone after %v", time.Since(begun).Round(time.Second))
}

func (c *scene) allReady(want int) error {
	list, err := c.api.CoreV1().Pods(c.namespace).List(c.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	have := 0
	for i := range list.Items {
		if ready(&list.Items[i]) == nil {
			have++
		}
	}
	if have != want {
		return fmt.Errorf("%d pods of %d are ready", have, want)
	}
	return nil
}

func (c *scene) noPods() error {
	list, err := c.api.CoreV1().Pods(c.namespace).List(c.Context(), metav1.ListOptions{})
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("%d pods are there", len(list.Items))
	}
	return err
}
