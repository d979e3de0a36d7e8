package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// parametersAnnotation has the parameters of the first call for a snapshot, as JSON, until
// the snapshot is ready. The calls that follow repeat them, even if the class has
// changed. They include no secret.
const parametersAnnotation = "holdfast.dev/snapshot-parameters"

// snapshotParameters returns the recorded parameters, or those of the class.
func (m *Manager) snapshotParameters(content *snapshotv1.VolumeSnapshotContent) (map[string]string, error) {
	_, marked := content.Annotations[claim.VolumeSnapshotKeys().BeingCreated]
	if text, kept := content.Annotations[parametersAnnotation]; kept && (marked || lifecycle.SnapshotHandle(content) != "") {
		var parameters map[string]string
		if err := json.Unmarshal([]byte(text), &parameters); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", parametersAnnotation, err)
		}
		return parameters, nil
	}
	class, err := m.classOfContent(content)
	if err != nil {
		return nil, err
	}
	extra, err := m.extraMetadata(content.Spec.Driver)
	if extra {
		maps.Copy(class.Parameters, namesOf(content).Metadata())
	}
	return class.Parameters, err
}

// snapshotRequest returns the same request for each call.
func (m *Manager) snapshotRequest(
	ctx context.Context, content *snapshotv1.VolumeSnapshotContent,
) (*plugins.Driver, *csi.CreateSnapshotRequest, error) {
	if content.Spec.Source.VolumeHandle == nil {
		return nil, nil, errors.New("spec.source: it names no volume")
	}
	parameters, err := m.snapshotParameters(content)
	if err != nil {
		return nil, nil, err
	}
	name, err := claim.Naming{}.SnapshotName(content.Spec.VolumeSnapshotRef.UID)
	if err != nil {
		return nil, nil, err
	}
	driver, err := m.options.Drivers.Driver(content.Spec.Driver)
	if err != nil {
		return nil, nil, err
	}
	can, err := driver.Client.ControllerCapabilities(ctx)
	if err == nil && !can.Snapshots {
		// A failure, since those are tried again when another driver comes.
		err = fmt.Errorf("driver %s takes no snapshots (CREATE_DELETE_SNAPSHOT)", content.Spec.Driver)
	}
	if err != nil {
		return nil, nil, err
	}
	reference, err := claim.VolumeSnapshotKeys().Secret(content.Annotations)
	if err != nil {
		return nil, nil, err
	}
	secrets, err := m.secret(reference, "CreateSnapshot")
	if err != nil {
		return nil, nil, err
	}
	return driver, &csi.CreateSnapshotRequest{
		SourceVolumeId: *content.Spec.Source.VolumeHandle, Name: name, Parameters: parameters, Secrets: secrets,
	}, nil
}

func (m *Manager) classOfContent(content *snapshotv1.VolumeSnapshotContent) (claim.SnapshotClass, error) {
	name := content.Spec.VolumeSnapshotClassName
	if name == nil {
		if content.Spec.Source.SnapshotHandle != nil {
			return claim.SnapshotClass{}, nil
		}
		return claim.SnapshotClass{}, errors.New("spec.volumeSnapshotClassName is missing")
	}
	class, err := load(m, (*store.Tx).SnapshotClasses, *name)
	switch {
	case err != nil:
		return claim.SnapshotClass{}, err
	case class == nil:
		return claim.SnapshotClass{}, waitFor(dependencies(dependency("volumesnapshotclasses", *name)), "",
			"VolumeSnapshotClass %q does not exist", *name)
	}
	return claim.ParseSnapshotClass(class.Name, class.Parameters)
}

// snapshotSecret is the secret of the calls that create and delete a snapshot.
func snapshotSecret(class *snapshotv1.VolumeSnapshotClass, names claim.SnapshotNames) (*corev1.SecretReference, error) {
	reserved := map[string]string{}
	for key, value := range class.Parameters {
		if strings.HasPrefix(key, claim.ReservedPrefix) {
			reserved[key] = value
		}
	}
	template, err := claim.TakeSecret(reserved, claim.ReservedPrefix+"snapshotter-secret")
	if err != nil || template == (claim.SecretTemplate{}) {
		return nil, err
	}
	reference, err := template.Resolve(names.Tokens())
	if err != nil {
		return nil, fmt.Errorf("VolumeSnapshotClass %q: %w", class.Name, err)
	}
	return reference, nil
}
