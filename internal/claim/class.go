package claim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
)

// ReservedPrefix begins the keys that belong to Kubernetes, in class
// parameters and in volume_context.
const ReservedPrefix = "csi.storage.k8s.io/"

const fsTypeKey = ReservedPrefix + "fstype"

// SecretUse says which call a secret is for.
type SecretUse string

// The uses of secrets that a StorageClass can name.
const (
	SecretProvision         SecretUse = "provisioner"
	SecretControllerPublish SecretUse = "controller-publish"
	SecretNodeStage         SecretUse = "node-stage"
	SecretNodePublish       SecretUse = "node-publish"
	SecretControllerExpand  SecretUse = "controller-expand"
	SecretNodeExpand        SecretUse = "node-expand"
	SecretControllerModify  SecretUse = "controller-modify"
)

func secretUses() []SecretUse {
	return []SecretUse{
		SecretProvision, SecretControllerPublish, SecretNodeStage, SecretNodePublish,
		SecretControllerExpand, SecretNodeExpand, SecretControllerModify,
	}
}

// SecretTemplate is the name and namespace of a secret before its tokens
// (${pvc.name} and the like) are replaced.
type SecretTemplate struct {
	Name, Namespace string
}

// Class is a StorageClass taken apart.
type Class struct {
	Name, Driver string
	// InTree is the in-tree plugin of Kubernetes that the class names and the driver
	// replaced; "" for a class that names the driver.
	InTree string
	// Parameters are the driver's: without Kubernetes' own keys.
	Parameters   map[string]string
	FSType       string
	MountOptions []string
	Secrets      map[SecretUse]SecretTemplate
}

// ParseClass takes a StorageClass apart. A key with ReservedPrefix that
// Kubernetes does not know is an error, and so is half of a secret's pair. A
// class that names no filesystem leaves FSType empty, and with it the choice to the
// driver, as external-provisioner does.
func ParseClass(sc *storagev1.StorageClass) (Class, error) {
	return ParseClassFS(sc, "")
}

// ParseClassFS is ParseClass with a filesystem for classes that name none
// (external-provisioner's --default-fstype).
func ParseClassFS(sc *storagev1.StorageClass, defaultFSType string) (Class, error) {
	class := Class{
		Name: sc.Name, Driver: sc.Provisioner, Parameters: map[string]string{},
		FSType: defaultFSType, MountOptions: slices.Clone(sc.MountOptions),
	}
	reserved := map[string]string{}
	for key, value := range sc.Parameters {
		if strings.HasPrefix(key, ReservedPrefix) {
			reserved[key] = value
			continue
		}
		class.Parameters[key] = value
	}
	if err := class.readFSType(reserved); err != nil {
		return Class{}, fmt.Errorf("StorageClass %q: %w", sc.Name, err)
	}
	if err := class.readSecrets(reserved); err != nil {
		return Class{}, fmt.Errorf("StorageClass %q: %w", sc.Name, err)
	}
	if unknown := slices.Sorted(maps.Keys(reserved)); len(unknown) > 0 {
		return Class{}, fmt.Errorf("StorageClass %q: parameters[%s]: no such key; known with this prefix are fstype and %s",
			sc.Name, unknown[0], strings.Join(secretKeys(), ", "))
	}
	return class, nil
}

// readFSType also honours a bare key "fstype" in any case, which stays among
// the driver's parameters (external-provisioner's rule).
func (c *Class) readFSType(reserved map[string]string) error {
	value, named := reserved[fsTypeKey]
	delete(reserved, fsTypeKey)
	if named && value != "" {
		c.FSType = value
	}
	for _, key := range slices.Sorted(maps.Keys(c.Parameters)) {
		if !strings.EqualFold(key, "fstype") {
			continue
		}
		if named {
			return fmt.Errorf("parameters[%s] and parameters[%s] both name a filesystem; keep one", fsTypeKey, key)
		}
		if c.Parameters[key] != "" {
			c.FSType = c.Parameters[key]
		}
	}
	return nil
}

func (c *Class) readSecrets(reserved map[string]string) error {
	fallback, err := TakeSecret(reserved, ReservedPrefix+"secret")
	if err != nil {
		return err
	}
	c.Secrets = map[SecretUse]SecretTemplate{}
	for _, use := range secretUses() {
		template, err := secretFor(use, reserved, c.Parameters)
		if err != nil {
			return err
		}
		if template == (SecretTemplate{}) {
			template = fallback
		}
		if template != (SecretTemplate{}) {
			c.Secrets[use] = template
		}
	}
	return nil
}
