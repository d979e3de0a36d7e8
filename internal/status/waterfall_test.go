package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func step(name string, status journal.Status, begin, took time.Duration) journal.StepEntry {
	return journal.StepEntry{
		Step: name, Status: status, Started: noon.Add(begin), Took: took, First: noon.Add(begin), Count: 1,
	}
}

func TestWaterfall_arrangesSteps(t *testing.T) {
	failed := step("stage", journal.Failed, 9*time.Second, time.Second)
	failed.Count, failed.First = 5, noon
	mounted := step("publish", journal.Done, time.Hour, 2*time.Second)
	mounted.Count, mounted.First = 3, noon
	for name, test := range map[string]struct {
		steps []journal.StepEntry
		want  string
	}{
		"no step":      {nil, ""},
		"one":          {[]journal.StepEntry{step("create", journal.Done, 0, time.Second)}, "create 0+100"},
		"of no length": {[]journal.StepEntry{step("create", journal.Done, 0, 0)}, "create 0+0"},
		"one after the other": {[]journal.StepEntry{
			step("stage", journal.Done, time.Second, time.Second), step("create", journal.Done, 0, time.Second),
		}, "create 0+50, stage 50+50"},
		"at once": {[]journal.StepEntry{
			step("a", journal.Done, 0, 4*time.Second), step("b", journal.Done, time.Second, time.Second),
		}, "a 0+100, b 25+25"},
		"idle time is shortened": {[]journal.StepEntry{
			step("create", journal.Done, 0, time.Second), step("stage", journal.Done, time.Hour, time.Second),
		}, "create 0+46, stage 54+46, break 46+8 59m59s"},
		"short idle time is to scale": {[]journal.StepEntry{
			step("create", journal.Done, 0, 49*time.Second), step("stage", journal.Done, 50*time.Second, 50*time.Second),
		}, "create 0+49, stage 50+50"},
		"a running step ends now": {[]journal.StepEntry{
			step("create", journal.Done, 0, 5*time.Second), step("stage", journal.Started, 5*time.Second, 0),
		}, "create 0+50, stage 50+50"},
		"equal failures are one bar":      {[]journal.StepEntry{failed}, "stage 0+100"},
		"of equal ends the last is shown": {[]journal.StepEntry{mounted}, "publish 0+100"},
		"the clock was set back": {[]journal.StepEntry{
			step("create", journal.Done, 0, time.Second), step("stage", journal.Started, time.Hour, 0),
		}, "create 0+92, stage 100+0, break 92+8 59m59s"},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWaterfall(test.steps, noon.Add(10*time.Second))
			var texts []string
			for _, bar := range w.Bars {
				texts = append(texts, fmt.Sprintf("%s %.0f+%.0f", bar.Step, bar.Offset, bar.Width))
			}
			for _, gap := range w.Breaks {
				texts = append(texts, fmt.Sprintf("break %.0f+%.0f %v", gap.Offset, gap.Width, gap.Idle))
			}
			if got := strings.Join(texts, ", "); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// Whatever the steps are, every bar is within the width, bars begin in the order of
// time, and breaks take a third at most.
func TestWaterfall_staysWithinItsWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var steps []journal.StepEntry
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			status := rapid.SampledFrom([]journal.Status{journal.Started, journal.Retrying, journal.Done, journal.Failed}).Draw(t, "status")
			begin := time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "begin"))
			steps = append(steps, step("s", status, begin, time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "took"))))
		}
		w := NewWaterfall(steps, noon.Add(72*time.Hour))
		const slack = 1e-6
		last, breaks := 0.0, 0.0
		for _, bar := range w.Bars {
			if bar.Offset < last-slack || bar.Width < -slack || bar.Offset+bar.Width > 100+slack {
				t.Fatalf("bar %f+%f after %f", bar.Offset, bar.Width, last)
			}
			last = bar.Offset
		}
		for _, gap := range w.Breaks {
			breaks += gap.Width
		}
		if breaks > allBreaks+slack {
			t.Fatalf("breaks have %f percent", breaks)
		}
	})
}
