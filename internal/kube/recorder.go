package kube

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// newRecorder returns a recorder that writes events from a queue and drops events
// when the queue is full, so that no work waits for an event. Repeated events are
// counted in one object. stop ends it.
func newRecorder(clients cluster.Clients, driver string) (recorder record.EventRecorder, stop func(), err error) {
	kinds, err := api.NewScheme()
	if err != nil {
		return nil, nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("host name for events: %w", err)
	}
	// The form is external-provisioner's: <driver>_<host>_<uuid>.
	component := fmt.Sprintf("%s_%s_%s", driver, host, uuid.NewUUID())
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(sink{clients.Events})
	return broadcaster.NewRecorder(kinds, corev1.EventSource{Component: component}), broadcaster.Shutdown, nil
}

// sink writes each event to its namespace. The recorder retries a failed request up
// to twelve times and has no context.
type sink struct{ client api.Kubernetes }

func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.client.CoreV1().Events(event.Namespace).Create(context.Background(), event, metav1.CreateOptions{})
}

func (s sink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.client.CoreV1().Events(event.Namespace).Update(context.Background(), event, metav1.UpdateOptions{})
}

// Patch counts a repeat in an existing event.
func (s sink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.client.CoreV1().Events(event.Namespace).Patch(context.Background(), event.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}
