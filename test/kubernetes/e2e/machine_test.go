package e2e

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
)

// comesBackAfterAPowerCut: the node is a machine whose power is cut, with a disk that loses
// what was not flushed. Its pod runs again, with what it had written.
func (c *scene) comesBackAfterAPowerCut() {
	node := c.cluster.Nodes[0]
	again := func(spec *corev1.PodSpec) { spec.RestartPolicy = corev1.RestartPolicyAlways }
	c.makeClaim(newClaim("kept", "64Mi"))
	c.run(newPod("keeper", "test -e /kept/file || { "+writeFile("/kept/file", "8m")+"; }; "+idle, withClaim("kept"), again))
	// What it writes stays in caches, which the power cut empties.
	c.makeClaim(newClaim("noise", "64Mi"))
	c.run(newPod("noise", "while dd if=/dev/urandom of=/noise/file bs=64k count=256; do :; done", withClaim("noise"), again))
	c.waitWritten("keeper", "/kept/file.sum")
	c.exec("keeper", "sync")
	ctx, cancel := context.WithTimeout(c.Context(), c.timeout)
	defer cancel()
	if err := c.cluster.StopNode(ctx, node); err != nil {
		c.Fatal(err)
	}
	if err := c.cluster.StartNode(ctx, node); err != nil {
		c.Fatal(err)
	}
	if err := errors.Join(c.cluster.WaitReady(ctx), c.deployment.WaitReady(ctx)); err != nil {
		c.Fatal(err)
	}
	for pod, check := range map[string]string{"keeper": checkFile("/kept/file"), "noise": "test -s /noise/file"} {
		c.eventually(func() error { // also until the kubelet has started the pod again
			_, err := c.kubectl(c.Context(), "exec", pod, "--", "sh", "-c", check)
			return err
		})
	}
	c.makeClaim(newClaim("more", "64Mi"))
	c.succeed(newPod("more", writeFile("/more/file", "1m"), withClaim("more")))
}
