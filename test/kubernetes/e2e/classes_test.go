package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
)

// makeClass makes a StorageClass like the chart's, with parameters, for as long
// as the test takes.
func (c *scene) makeClass(name string, parameters map[string]string) {
	c.Helper()
	c.makeClassOf(deployment.LocalDriver, name, parameters)
}

func (c *scene) makeClassOf(driver, name string, parameters map[string]string) {
	c.Helper()
	c.makeStorageClass(driver, name, storagev1.VolumeBindingWaitForFirstConsumer, parameters)
}

func (c *scene) makeStorageClass(driver, name string, mode storagev1.VolumeBindingMode, parameters map[string]string) {
	c.Helper()
	yes := true
	made := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, Parameters: parameters,
		AllowVolumeExpansion: &yes, VolumeBindingMode: &mode,
	}
	must(c)(c.api.StorageV1().StorageClasses().Create(c.Context(), made, metav1.CreateOptions{}))
	c.Cleanup(func() {
		ctx := context.WithoutCancel(c.Context())
		if err := c.api.StorageV1().StorageClasses().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	})
}

func (c *scene) makeAttributesClass(name string, parameters map[string]string) {
	c.Helper()
	c.makeAttributesClassOf(deployment.LocalDriver, name, parameters)
}

func (c *scene) makeAttributesClassOf(driver, name string, parameters map[string]string) {
	c.Helper()
	made := &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: parameters,
	}
	must(c)(c.api.StorageV1().VolumeAttributesClasses().Create(c.Context(), made, metav1.CreateOptions{}))
	// It stays until no claim has it any more.
	c.Cleanup(func() {
		ctx := context.WithoutCancel(c.Context())
		if err := c.api.StorageV1().VolumeAttributesClasses().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	})
}

func (c *scene) patchClaim(name, patch string) {
	c.Helper()
	must(c)(c.api.CoreV1().PersistentVolumeClaims(c.namespace).Patch(
		c.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

// allocated is how many bytes of a node's disk a volume's file takes.
func (s *suite) allocated(node, volume string) (int64, error) {
	found, err := filepath.Glob(filepath.Join(s.cluster.NodeRoot(node), pool, "volumes/*", "data"))
	if err != nil {
		return 0, err
	}
	handle, err := s.handle(volume)
	if err != nil {
		return 0, err
	}
	for _, file := range found {
		if filepath.Base(filepath.Dir(file)) != handle {
			continue
		}
		var stat syscall.Stat_t
		if err := syscall.Stat(file, &stat); err != nil {
			return 0, &os.PathError{Op: "stat", Path: file, Err: err}
		}
		return stat.Blocks * 512, nil
	}
	return 0, fmt.Errorf("volume %s (%s) is not in the pool of %s, which has %v", volume, handle, node, found)
}

// handle is the driver's ID of a volume.
func (s *suite) handle(volume string) (string, error) {
	text, err := s.cluster.Kubectl(context.Background(), "get", "pv", volume, "-o", "jsonpath={.spec.csi.volumeHandle}")
	return strings.TrimSpace(text), err
}
