package api

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// component is who the events say that they come from.
const component = "holdfast-host"

// events are the journal's events in the form of core/v1. Their versions are
// the journal's sequence numbers, which are not the store's.
type events struct{ journal *journal.Journal }

func (e events) list(desired filter) ([]store.Object, uint64, error) {
	entries, version, err := e.journal.After(0)
	items := []store.Object{}
	for _, entry := range entries {
		if entry.Event == nil {
			continue
		}
		if event := eventOf(entry); desired.matches(event) {
			items = append(items, event)
		}
	}
	return items, version, err
}

func (e events) get(desired filter) (store.Object, error) {
	items, _, err := e.list(desired)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	return items[0], nil
}

func (e events) follow(version uint64) func(context.Context) ([]change, error) {
	watching := e.journal.Watch(version)
	return func(ctx context.Context) ([]change, error) {
		for {
			entries, err := watching.Next(ctx)
			if err != nil {
				return nil, err
			}
			var changes []change
			for _, entry := range entries {
				if entry.Event == nil {
					continue
				}
				event := eventOf(entry)
				verb := watch.Modified
				if event.Count == 1 {
					verb = watch.Added
				}
				changes = append(changes, change{verb: verb, key: store.KeyOf(event), object: event})
			}
			if len(changes) > 0 {
				return changes, nil
			}
		}
	}
}

// eventOf puts an event into the namespace of its object, as a cluster does, and into
// default for an object without one.
func eventOf(entry journal.Entry) *corev1.Event {
	from := entry.Event
	namespace, name, namespaced := strings.Cut(from.About.Key, "/")
	if !namespaced {
		namespace, name = "", from.About.Key
	}
	about := corev1.ObjectReference{Kind: from.About.Kind, Namespace: namespace, Name: name,
		UID: types.UID(from.About.UID)}
	for _, kind := range store.Kinds() {
		if kind.Kind == from.About.Kind {
			about.APIVersion = kind.GroupVersion().String()
		}
	}
	if namespace == "" {
		namespace = manifest.DefaultNamespace
	}
	severity := corev1.EventTypeNormal
	if from.Warning {
		severity = corev1.EventTypeWarning
	}
	return &corev1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "." + entry.ID, Namespace: namespace, UID: types.UID(entry.ID),
			ResourceVersion: strconv.FormatUint(entry.Sequence, 10), CreationTimestamp: metav1.NewTime(from.First),
		},
		InvolvedObject: about, Reason: from.Reason, Message: from.Message, Type: severity,
		Source:              corev1.EventSource{Component: component},
		ReportingController: component,
		FirstTimestamp:      metav1.NewTime(from.First), LastTimestamp: metav1.NewTime(from.Last),
		Count: int32(min(from.Count, 1<<30)), //nolint:gosec // bounded
	}
}
