package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// servesTheInTreePlugin uses a class and volumes of kubernetes.io/aws-ebs, which the
// controller-manager and the kubelets have migrated to the driver.
func servesTheInTreePlugin(c *scene, _ *emulator) {
	c.makeClassOf("kubernetes.io/aws-ebs", c.namespace, map[string]string{"type": "io1", "iopsPerGB": "10", "fsType": "xfs", "encrypted": "1"})
	c.makeClaim(newClaim("data", "4Gi", inClass(c.namespace)))
	c.run(newPod("writer", writeFile("/data/file", "8m")+" && "+idle, withClaim("data"), on(c.cluster.Nodes[0])))
	c.waitWritten("writer", "/data/file.sum")
	pv := c.persistentVolumeOf("data")
	if pv.Spec.CSI != nil || pv.Spec.AWSElasticBlockStore == nil {
		c.Fatalf("the PersistentVolume is of %+v", pv.Spec.PersistentVolumeSource)
	}
	if got := c.exec("writer", "awk '$2 == \"/data\" {print $3}' /proc/mounts"); got != "xfs" {
		c.Errorf("the filesystem is %q", got)
	}
	c.resize("data", "6Gi")
	if got := c.exec("writer", "df -Pm /data | awk 'END {print ($2 > 5500)}'"); got != "1" {
		c.Errorf("the filesystem has not grown: %s", c.exec("writer", "df -m /data"))
	}
	c.removePod("writer")
	c.run(newPod("reader", idle, withClaim("data"), on(c.cluster.Nodes[1])))
	c.exec("reader", checkFile("/data/file"))
	c.removePod("reader")

	// A pod's own volume of the plugin.
	c.run(newPod("inline", idle, on(c.cluster.Nodes[0]), withVolume("data", corev1.VolumeSource{
		AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: pv.Spec.AWSElasticBlockStore.VolumeID, FSType: "xfs"},
	})))
	c.exec("inline", checkFile("/data/file"))
	c.removePod("inline")
	c.eventually(func() error { return c.unattached() })
}

// persistentVolumeOf returns the PersistentVolume of a bound claim.
func (c *scene) persistentVolumeOf(claim string) *corev1.PersistentVolume {
	c.Helper()
	pvc, err := c.getClaim(claim)
	if err != nil {
		c.Fatal(err)
	}
	pv, err := c.api.CoreV1().PersistentVolumes().Get(c.Context(), pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return pv
}

// unattached returns an error while an inline volume is attached: no claim keeps it.
func (c *scene) unattached() error {
	list, err := c.api.StorageV1().VolumeAttachments().List(c.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, a := range list.Items {
		if a.Spec.Source.InlineVolumeSpec != nil {
			return fmt.Errorf("the inline volume of %s is attached to %s", a.Name, a.Spec.NodeName)
		}
	}
	return nil
}
