package node

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/usage"
)

// surveyOf returns the volumes of a survey by their IDs.
func surveyOf(f *fixture) map[string]usage.Volume {
	found := map[string]usage.Volume{}
	for _, volume := range f.engine.Survey(context.Background()) {
		found[volume.ID] = volume
	}
	return found
}

func TestSurvey_findsStatesInTheKernel(t *testing.T) {
	f := newFixture(t)
	for _, id := range []string{"idle", "staged", "published", "raw"} {
		f.backend.add(t, id, sizes["ext4"])
		f.backend.listed = append(f.backend.listed, backend.NodeVolume{ID: id, Size: sizes["ext4"], Frozen: id == "staged"})
		f.stagingDir(id)
		f.cleanUp(id, "pod")
	}
	f.target("published", "pod")
	f.must(f.stage("staged", filesystem("ext4")))
	f.must(f.stage("published", filesystem("ext4")))
	f.must(f.publish("published", "pod", filesystem("ext4"), false))
	f.must(f.stage("raw", backend.Capability{Mode: backend.SingleNodeWriter, Block: true}))
	found := surveyOf(f)
	for id, want := range map[string]usage.VolumeState{
		"idle": usage.Available, "staged": usage.Staged, "published": usage.Published, "raw": usage.Staged,
	} {
		got := found[id]
		if got.State != want || got.Size != sizes["ext4"] || got.Frozen != (id == "staged") || got.Unresponsive {
			t.Errorf("%s is %+v, want it %s", id, got, want)
		}
		if hasFilesystem := id == "staged" || id == "published"; (got.Used >= 0) != hasFilesystem {
			t.Errorf("%s has %d used bytes", id, got.Used)
		}
		if (got.Device == "") != (id == "idle") {
			t.Errorf("%s has the device %q", id, got.Device)
		}
	}
}

func TestSurvey_reportsProblemsOfVolumesAndNotOfThePool(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol", sizes["ext4"])
	f.backend.listed = []backend.NodeVolume{{ID: "vol"}}
	f.stagingDir("vol")
	f.cleanUp("vol")
	f.must(f.stage("vol", filesystem("ext4")))
	f.backend.problems = []backend.HealthProblem{{Kind: backend.HealthDegraded, Reason: "DirectIOUnavailable"}}
	s := survey{engine: f.engine, common: []string{"PoolNearlyFull"}}
	f.backend.problems = append(f.backend.problems, backend.HealthProblem{Kind: backend.HealthDegraded, Reason: "PoolNearlyFull"})
	if got := s.ask(t.Context(), "vol", "", true).conditions; !slices.Equal(got, []string{"DirectIOUnavailable"}) {
		t.Errorf("the conditions are %q", got)
	}
}

// A filesystem that still does not answer the last survey is not asked again.
func TestSurvey_askingHangsOnce(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol", sizes["ext4"])
	f.backend.listed = []backend.NodeVolume{{ID: "vol"}}
	f.stagingDir("vol")
	f.cleanUp("vol")
	f.must(f.stage("vol", filesystem("ext4")))
	hangs, began, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- f.engine.calls.Run(context.Background(), "an earlier survey", []string{"survey vol"}, func(context.Context) error {
			close(began)
			<-hangs
			return nil
		})
	}()
	<-began
	if got := surveyOf(f)["vol"]; !got.Unresponsive || got.State != usage.Staged {
		t.Errorf("while the filesystem hangs the volume is %+v", got)
	}
	close(hangs)
	f.must(<-ended)
	if got := surveyOf(f)["vol"]; got.Unresponsive || got.Used < 0 {
		t.Errorf("afterwards the volume is %+v", got)
	}
}
