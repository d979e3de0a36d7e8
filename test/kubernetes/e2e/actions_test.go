package e2e

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (c *scene) makeClaim(claim *corev1.PersistentVolumeClaim) {
	c.Helper()
	must(c)(c.api.CoreV1().PersistentVolumeClaims(c.namespace).Create(c.Context(), claim, metav1.CreateOptions{}))
}

// makePod waits for the namespace's service account, which the controller
// manager makes.
func (c *scene) makePod(pod *corev1.Pod) {
	c.Helper()
	c.eventually(func() error {
		_, err := c.api.CoreV1().Pods(c.namespace).Create(c.Context(), pod, metav1.CreateOptions{})
		return err
	})
}

// run makes a pod and waits until it is ready. It returns the node it is on.
func (c *scene) run(pod *corev1.Pod) string {
	c.Helper()
	c.makePod(pod)
	return c.waitReady(pod.Name)
}

// waitReady returns the node the pod is on.
func (c *scene) waitReady(name string) string {
	c.Helper()
	var node string
	c.eventually(func() error {
		pod, err := c.getPod(name)
		if err != nil {
			return err
		}
		node = pod.Spec.NodeName
		return ready(pod)
	})
	return node
}

func ready(pod *corev1.Pod) error {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
			return nil
		}
	}
	return fmt.Errorf("pod %s/%s is not ready: %s", pod.Namespace, pod.Name, pod.Status.Phase)
}

func (c *scene) getPod(name string) (*corev1.Pod, error) {
	return c.api.CoreV1().Pods(c.namespace).Get(c.Context(), name, metav1.GetOptions{})
}

func (c *scene) getClaim(name string) (*corev1.PersistentVolumeClaim, error) {
	return c.api.CoreV1().PersistentVolumeClaims(c.namespace).Get(c.Context(), name, metav1.GetOptions{})
}

// succeed runs a pod until it has succeeded.
func (c *scene) succeed(pod *corev1.Pod) {
	c.Helper()
	c.makePod(pod)
	c.eventually(func() error {
		now, err := c.getPod(pod.Name)
		if err != nil {
			return err
		}
		switch now.Status.Phase {
		case corev1.PodSucceeded:
			return nil
		case corev1.PodFailed:
			logs, err := c.kubectl(c.Context(), "logs", pod.Name)
			c.Fatal(errors.Join(fmt.Errorf("pod %s failed: %s", pod.Name, logs), err))
		}
		return fmt.Errorf("pod %s has not ended: %s", pod.Name, now.Status.Phase)
	})
}

// exec runs a script in a pod and returns its output.
func (c *scene) exec(pod, script string) string {
	c.Helper()
	output, err := c.kubectl(c.Context(), "exec", pod, "--", "sh", "-c", script)
	if err != nil {
		c.Fatal(err)
	}
	return strings.TrimSpace(output)
}

// removePod deletes a pod and waits until it is gone. A controller may make
// another one with its name.
func (c *scene) removePod(name string) {
	c.Helper()
	pod, err := c.getPod(name)
	if err != nil {
		c.Fatal(err)
	}
	if err := c.api.CoreV1().Pods(c.namespace).Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	c.eventually(func() error {
		now, err := c.getPod(name)
		if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
			return nil
		}
		return errors.Join(fmt.Errorf("pod %s is there", name), err)
	})
}
