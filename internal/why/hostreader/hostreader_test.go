package hostreader

import (
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/why"
)

var _ why.Host = Reader{}

func TestUnfinished_returnsTheLastStepOfEachVolume(t *testing.T) {
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	step := func(volume, name string, status journal.Status, attempts int) journal.StepEntry {
		return journal.StepEntry{Volume: volume, Step: name, Status: status, Attempts: attempts, Started: at, Count: 1}
	}
	calls := Unfinished([]journal.StepEntry{
		step("a", "create", journal.Failed, 3), step("a", "create", journal.Done, 0), step("a", "mount", journal.Retrying, 4),
		step("b", "create", journal.Failed, 2), step("b", "create", journal.Done, 0),
		step("c", "create", journal.Started, 0),
	})
	if len(calls) != 2 || calls[0].Step != "mount" || calls[0].Attempts != 4 || calls[0].Running || !calls[1].Running || !calls[0].Since.Equal(at) {
		t.Errorf("got %+v", calls)
	}
}

func TestUnfinished_saysHowFarAStepIs(t *testing.T) {
	copying := journal.StepEntry{Volume: "a", Step: "create", Status: journal.Started, Progress: &progress.State{Doing: "copying", Done: 1, Total: 4, Unit: progress.Bytes}}
	if calls := Unfinished([]journal.StepEntry{copying}); len(calls) != 1 || !calls[0].Running || calls[0].Progress != "copying 1 of 4 B" {
		t.Errorf("got %+v", calls)
	}
}
