package migration

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
)

// Clients returns clients that translate PersistentVolumes.
func (t *Translator) Clients(core api.Kubernetes) api.Kubernetes {
	if t == nil {
		return core
	}
	return kubernetes{core, t}
}

type kubernetes struct {
	api.Kubernetes
	translator *Translator
}

// CoreV1 implements api.Kubernetes.
func (k kubernetes) CoreV1() api.CoreV1 { return coreV1{k.Kubernetes.CoreV1(), k.translator} }

type coreV1 struct {
	api.CoreV1
	translator *Translator
}

// PersistentVolumes implements api.CoreV1.
func (c coreV1) PersistentVolumes() api.Resource[*corev1.PersistentVolume, *corev1.PersistentVolumeList] {
	return volumes{c.CoreV1.PersistentVolumes(), c.translator}
}

// volumes are the PersistentVolumes, those of the plugin as those of the driver.
type volumes struct {
	api.Resource[*corev1.PersistentVolume, *corev1.PersistentVolumeList]
	translator *Translator
}

func (v volumes) read(pv *corev1.PersistentVolume, err error) (*corev1.PersistentVolume, error) {
	if err != nil {
		return pv, err
	}
	return v.translator.Volume(pv), nil
}

// Get implements api.Getter.
func (v volumes) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.PersistentVolume, error) {
	return v.read(v.Resource.Get(ctx, name, o))
}

// List implements api.Reader.
func (v volumes) List(ctx context.Context, o metav1.ListOptions) (*corev1.PersistentVolumeList, error) {
	list, err := v.Resource.List(ctx, o)
	if err != nil {
		return list, err
	}
	for i := range list.Items {
		list.Items[i] = *v.translator.Volume(&list.Items[i])
	}
	return list, nil
}

// Watch implements api.Reader.
func (v volumes) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	events, err := v.Resource.Watch(ctx, o)
	if err != nil {
		return events, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		if pv, ok := event.Object.(*corev1.PersistentVolume); ok {
			event.Object = v.translator.Volume(pv)
		}
		return event, true
	}), nil
}

// Patch implements api.Writer.
func (v volumes) Patch(
	ctx context.Context, name string, kind types.PatchType, patch []byte, o metav1.PatchOptions, subresources ...string,
) (*corev1.PersistentVolume, error) {
	return v.read(v.Resource.Patch(ctx, name, kind, patch, o, subresources...))
}

// Create implements api.Creator. A volume that has no translation is rejected as an
// invalid object, as the API server would reject it: now and later.
func (v volumes) Create(
	ctx context.Context, pv *corev1.PersistentVolume, o metav1.CreateOptions,
) (*corev1.PersistentVolume, error) {
	if v.translator.InTree(pv) {
		translated, err := v.translator.ToInTree(pv)
		if err != nil {
			invalid := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PersistentVolume").GroupKind(), pv.Name, nil)
			invalid.ErrStatus.Message = "PersistentVolume " + pv.Name + ": " + err.Error()
			return nil, invalid
		}
		pv = translated
	}
	return v.read(v.Resource.Create(ctx, pv, o))
}

// Update implements api.Writer. No controller writes a whole PersistentVolume: it would
// change the plugin's form into the driver's.
func (v volumes) Update(
	context.Context, *corev1.PersistentVolume, metav1.UpdateOptions,
) (*corev1.PersistentVolume, error) {
	return nil, apierrors.NewMethodNotSupported(corev1.Resource("persistentvolumes"), "update")
}
