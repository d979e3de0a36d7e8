package claim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func class(parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "d.example", Parameters: parameters, MountOptions: []string{"noatime"},
	}
}

func TestParseClass_takesKubernetesKeysAway(t *testing.T) {
	cases := []struct {
		name       string
		parameters map[string]string
		want       Class
	}{
		{"nothing", nil, Class{Parameters: map[string]string{}}},
		{"fstype", map[string]string{"csi.storage.k8s.io/fstype": "xfs", "tier": "a"},
			Class{FSType: "xfs", Parameters: map[string]string{"tier": "a"}}},
		{"an empty fstype is the default", map[string]string{"csi.storage.k8s.io/fstype": ""},
			Class{Parameters: map[string]string{}}},
		{"a bare fstype stays the driver's", map[string]string{"FsType": "btrfs"},
			Class{FSType: "btrfs", Parameters: map[string]string{"FsType": "btrfs"}}},
		{"a secret", map[string]string{
			"csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}", "csi.storage.k8s.io/node-stage-secret-namespace": "ns"},
			Class{Parameters: map[string]string{}, Secrets: map[SecretUse]SecretTemplate{SecretNodeStage: {"${pvc.name}", "ns"}}}},
		{"a secret for everything, and one of its own", map[string]string{
			"csi.storage.k8s.io/secret-name": "s", "csi.storage.k8s.io/secret-namespace": "ns",
			"csi.storage.k8s.io/provisioner-secret-name": "p", "csi.storage.k8s.io/provisioner-secret-namespace": "ns"},
			Class{Parameters: map[string]string{}, Secrets: map[SecretUse]SecretTemplate{
				SecretProvision: {"p", "ns"}, SecretControllerPublish: {"s", "ns"}, SecretNodeStage: {"s", "ns"}, SecretNodePublish: {"s", "ns"},
				SecretControllerExpand: {"s", "ns"}, SecretNodeExpand: {"s", "ns"}, SecretControllerModify: {"s", "ns"},
			}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseClass(class(c.parameters))
			if err != nil {
				t.Fatal(err)
			}
			c.want.Name, c.want.Driver, c.want.MountOptions = "fast", "d.example", []string{"noatime"}
			if c.want.Secrets == nil {
				c.want.Secrets = map[SecretUse]SecretTemplate{}
			}
			if difference := cmp.Diff(c.want, got); difference != "" {
				t.Error(difference)
			}
		})
	}
}

func TestParseClass_refuses(t *testing.T) {
	cases := []struct {
		name       string
		parameters map[string]string
		want       string
	}{
		{"an unknown reserved key", map[string]string{"csi.storage.k8s.io/pod.name": "x"},
			`StorageClass "fast": parameters[csi.storage.k8s.io/pod.name]: no such key`},
		{"half a pair", map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "x"},
			"parameters[csi.storage.k8s.io/provisioner-secret-name] and parameters[csi.storage.k8s.io/provisioner-secret-namespace] must both be given"},
		{"an empty half", map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "x", "csi.storage.k8s.io/provisioner-secret-namespace": ""},
			"must both be given and not be empty"},
		{"two filesystems", map[string]string{"csi.storage.k8s.io/fstype": "xfs", "fstype": "ext4"},
			"parameters[csi.storage.k8s.io/fstype] and parameters[fstype] both name a filesystem"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseClass(class(c.parameters)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
