// Package migration lets the controllers of a CSI driver serve the objects of the
// in-tree plugin of Kubernetes that the driver replaced (CSI migration, KEP 625).
//
// The controllers see a PersistentVolume of the plugin as one of the driver: the
// clients of a process translate each object that they read, and one that they create
// back. So no controller handles both forms, except for the provisioner: its claims and
// classes may name the plugin. Writes are patches of fields that both forms have.
//
// The translation is that of k8s.io/csi-translation-lib, which Kubernetes uses.
package migration

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/csi-translation-lib/plugins"
	"k8s.io/klog/v2"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

const (
	// MigratedToAnnotation is claim.MigratedToAnnotation.
	MigratedToAnnotation = claim.MigratedToAnnotation
	// IdentityAnnotation keeps claim.IdentityAttribute on a PersistentVolume of an in-tree
	// plugin, which has no volume attributes.
	IdentityAnnotation = "migration.holdfast.dev/provisioner-identity"
)

// Translator translates the objects of one in-tree plugin. Nil is the translator of a
// driver that replaced none: it returns objects as they are.
type Translator struct {
	driver string
	plugin plugins.InTreePlugin
}

// For returns the translator of a driver.
func For(driver string) *Translator {
	plugin := plugins.NewAWSElasticBlockStoreCSITranslator()
	if driver != plugin.GetCSIPluginName() {
		return nil
	}
	return &Translator{driver, plugin}
}

// Plugin returns the name of the in-tree plugin, "" if there is none.
func (t *Translator) Plugin() string {
	if t == nil {
		return ""
	}
	return t.plugin.GetInTreePluginName()
}

// Class returns a StorageClass of the plugin with parameters and topologies of the
// driver. Its provisioner stays the plugin. Other classes are returned as they are. The
// error reports parameters that have no translation.
func (t *Translator) Class(class *storagev1.StorageClass) (*storagev1.StorageClass, error) {
	if t == nil || class.Provisioner != t.Plugin() {
		return class, nil
	}
	translated, err := t.plugin.TranslateInTreeStorageClassToCSI(klog.Background(), class.DeepCopy())
	if err != nil {
		return nil, fmt.Errorf("StorageClass %q of the in-tree plugin %s: translate it to driver %s: %w",
			class.Name, class.Provisioner, t.driver, err)
	}
	return translated, nil
}

// Volume returns a PersistentVolume of the plugin that was migrated to the driver as one
// of the driver. Others are returned as they are, and so is one that has no translation:
// no controller serves it. Its argument stays as it is.
func (t *Translator) Volume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	if t == nil || pv == nil || !t.plugin.CanSupport(pv) || pv.Annotations[MigratedToAnnotation] != t.driver {
		return pv
	}
	translated, err := t.plugin.TranslateInTreePVToCSI(klog.Background(), pv.DeepCopy())
	if err != nil {
		return pv
	}
	if identity := pv.Annotations[IdentityAnnotation]; identity != "" {
		translated.Spec.CSI.VolumeAttributes[claim.IdentityAttribute] = identity
	}
	return translated
}

// InTree reports whether a PersistentVolume is to be created as one of the plugin:
// because its class was one.
func (t *Translator) InTree(pv *corev1.PersistentVolume) bool {
	return t != nil && pv.Spec.CSI != nil && pv.Annotations[claim.ProvisionedByAnnotation] == t.Plugin()
}

// ToInTree returns a PersistentVolume of the driver as one of the plugin, marked as
// migrated. The controller-manager would set the mark later; without it no controller
// would serve the volume meanwhile.
func (t *Translator) ToInTree(pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	identity := pv.Spec.CSI.VolumeAttributes[claim.IdentityAttribute]
	translated, err := t.plugin.TranslateCSIPVToInTree(pv.DeepCopy())
	if err != nil {
		return nil, fmt.Errorf("translate it to the in-tree plugin %s: %w", t.Plugin(), err)
	}
	metav1.SetMetaDataAnnotation(&translated.ObjectMeta, MigratedToAnnotation, t.driver)
	if identity != "" {
		metav1.SetMetaDataAnnotation(&translated.ObjectMeta, IdentityAnnotation, identity)
	}
	return translated, nil
}
