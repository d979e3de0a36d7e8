package cli

import (
	"context"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// progressOf returns how far the work for each object is; nil if nothing is known of any
// of them. A host that does not say is an older one.
func progressOf(
	ctx context.Context, client *api.Client, kind store.Kind, objects []store.Object,
) func(store.Object) string {
	if !slices.Contains([]string{"PersistentVolumeClaim", "Pod", "VolumeSnapshot"}, kind.Kind) {
		return nil
	}
	steps, err := client.Progress(ctx)
	if err != nil || len(steps) == 0 {
		return nil
	}
	of := func(object store.Object) string { return stepProgress(steps, kind, object) }
	if !slices.ContainsFunc(objects, func(object store.Object) bool { return of(object) != "" }) {
		return nil
	}
	return of
}

// stepProgress is the progress of the first step that is about an object, "" if none is.
func stepProgress(steps []journal.StepEntry, kind store.Kind, object store.Object) string {
	for _, step := range steps {
		if step.Progress != nil && isAbout(step.About, kind, object) {
			return step.Progress.String()
		}
	}
	return ""
}

// isAbout reports whether an object is among those that an entry of the journal is about.
func isAbout(about []journal.Ref, kind store.Kind, object store.Object) bool {
	return slices.ContainsFunc(about, func(ref journal.Ref) bool {
		return ref.Kind == kind.Kind && ref.Key == store.KeyOf(object) &&
			(ref.UID == "" || ref.UID == string(object.GetUID()))
	})
}
