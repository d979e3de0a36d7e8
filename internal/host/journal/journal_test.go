package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func opened(t *testing.T, root string) *Journal {
	t.Helper()
	j, err := Open(root, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func claimRef(name string) Ref { return Ref{Kind: "PersistentVolumeClaim", Key: "default/" + name} }

func storyOf(t *testing.T, j *Journal, name string) Story {
	t.Helper()
	story, err := j.Of("PersistentVolumeClaim", "default/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return story
}

func TestRecord_countsRepetitions(t *testing.T) {
	root := t.TempDir()
	j := opened(t, root)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	j.now = func() time.Time { return now }
	for i := range 5 {
		now = now.Add(time.Minute)
		j.Record(Notice{About: claimRef("data"), Warning: true, Reason: "ProvisioningFailed", Message: "no space"})
		if i == 2 {
			storyOf(t, j, "data") // writes: the rest is counted in the file
		}
	}
	j.Record(Notice{About: claimRef("data"), Reason: "ProvisioningFailed", Message: "no space"}) // no warning: another one
	j.Record(Notice{About: claimRef("other"), Warning: true, Reason: "ProvisioningFailed", Message: "no space"})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	events := storyOf(t, opened(t, root), "data").Events
	if len(events) != 2 {
		t.Fatalf("%d events, want 2: %v", len(events), events)
	}
	first := events[0]
	if first.Count != 5 || first.Last.Sub(first.First) != 4*time.Minute || !first.Warning {
		t.Errorf("the event is %+v, want it 5 times within 4 minutes", first)
	}
}

func TestStep_endReplacesTheBeginning(t *testing.T) {
	j := opened(t, t.TempDir())
	begin := time.Now()
	step := StepEntry{About: []Ref{claimRef("data"), {Kind: "Pod", Key: "default/web"}}, Volume: "data", Step: "stage", Status: Started, Started: begin}
	j.Step(step)
	if steps := storyOf(t, j, "data").Steps; len(steps) != 1 || steps[0].Status != Started {
		t.Fatalf("while it runs there is %+v", steps)
	}
	for _, status := range []Status{Failed, Failed, Done} {
		step.Status, step.Took = status, 20*time.Millisecond
		if step.Error, step.Code = "", ""; status == Failed {
			step.Error, step.Code = "no device", "Internal"
		}
		j.Step(step)
		step.Status, step.Started = Started, step.Started.Add(time.Second)
		j.Step(step)
	}
	var steps []string
	for _, s := range storyOf(t, j, "data").Steps {
		steps = append(steps, fmt.Sprint(s.Status, " ", s.Count, " ", s.Code))
	}
	if got, want := strings.Join(steps, ", "), "failed 2 Internal, done 1 , started 1 "; got != want {
		t.Errorf("the story is %q, want %q", got, want)
	}
	pod, err := j.Of("Pod", "default/web")
	if err != nil || len(pod.Steps) != 3 {
		t.Errorf("the pod's story has %d steps (%v), want the claim's 3", len(pod.Steps), err)
	}
}

// A step that is repeated keeps its first beginning and its attempts, whether they are
// written one by one or at once.
func TestStep_remembersItsAttempts(t *testing.T) {
	for _, oneByOne := range []bool{true, false} {
		j := opened(t, t.TempDir())
		begin := time.Now().Add(-time.Hour)
		for i, status := range []Status{Started, Retrying, Started, Retrying, Started, Done, Started, Done} {
			step := StepEntry{About: []Ref{claimRef("data")}, Volume: "data", Step: "stage", Status: status, Started: begin.Add(time.Duration(i/2) * time.Minute)}
			if status != Started {
				step.Attempts = 1
			}
			j.Step(step)
			if steps := storyOf(t, j, "data").Steps; oneByOne && i == 4 && (len(steps) != 1 || steps[0].Attempts != 2 || !steps[0].First.Equal(begin)) {
				t.Errorf("at the third attempt: %+v", steps)
			}
			if i == 5 && !oneByOne {
				break
			}
		}
		steps := storyOf(t, j, "data").Steps
		if len(steps) != 1 || !steps[0].First.Equal(begin) || !oneByOne && steps[0].Attempts != 3 {
			t.Errorf("one by one %v: %+v, want one step of three attempts", oneByOne, steps)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestJournal_isBounded(t *testing.T) {
	j := opened(t, t.TempDir())
	for i := range most + 500 {
		j.Record(Notice{About: claimRef(fmt.Sprint(i)), Reason: "R", Message: "m"})
		if i%3000 == 0 {
			storyOf(t, j, "0")
		}
	}
	entries, last, err := j.After(0)
	if err != nil || len(entries) != most || last != most+500 {
		t.Fatalf("%d entries up to %d (%v), want %d up to %d", len(entries), last, err, most, most+500)
	}
	later := time.Now().Add(longest + time.Hour)
	j.now = func() time.Time { return later }
	j.Record(Notice{About: claimRef("new"), Reason: "R", Message: "m"})
	if entries, _, err = j.After(0); err != nil || len(entries) != 1 {
		t.Errorf("a day later %d entries are left (%v), want 1", len(entries), err)
	}
	if story := storyOf(t, j, "700"); len(story.Events) != 0 {
		t.Errorf("dropped entries are still found: %v", story)
	}
}

func TestWatch_seesEverythingOnceItHappened(t *testing.T) {
	j := opened(t, t.TempDir())
	const writers, each = 4, 200
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				j.Record(Notice{About: claimRef(fmt.Sprint(w)), Reason: "R", Message: fmt.Sprint(i)})
			}
		})
	}
	seen := map[string]bool{}
	watch := j.Watch(0)
	for len(seen) < writers*each {
		entries, err := watch.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			name := entry.Event.About.Key + " " + entry.Event.Message
			if seen[name] {
				t.Fatalf("%s came twice", name)
			}
			seen[name] = true
		}
	}
	group.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if entries, err := watch.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing happens, and the watch says %v, %v", entries, err)
	}
}

// A power failure may leave anything in a file that is written without fsync.
func TestOpen_movesADamagedFileAside(t *testing.T) {
	damages := map[string]func([]byte) []byte{
		"nothing but zeros": func(data []byte) []byte { return make([]byte, len(data)) },
		"no bbolt file":     func([]byte) []byte { return []byte("hello") },
		"truncated":         func(data []byte) []byte { return data[:3*4096] },
		"pages of zeros":    func(data []byte) []byte { return append(data[:2*4096:2*4096], make([]byte, len(data)-2*4096)...) },
		"pages of ones": func(data []byte) []byte {
			return append(data[:2*4096:2*4096], bytes.Repeat([]byte{0xff}, len(data)-2*4096)...)
		},
		"an entry that is none": func(data []byte) []byte {
			return bytes.ReplaceAll(data, []byte(`{"sequence"`), []byte(`{"sequence`+"\x00"))
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, FileName)
			j := opened(t, root)
			for i := range 200 {
				j.Record(Notice{About: claimRef(fmt.Sprint(i)), Reason: "R", Message: strings.Repeat("m", 100)})
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(data), 0o600); err != nil {
				t.Fatal(err)
			}
			j = opened(t, root)
			j.Record(Notice{About: claimRef("new"), Reason: "R"})
			if story := storyOf(t, j, "new"); len(story.Events) != 1 {
				t.Errorf("the new journal has %v", story)
			}
			if _, err := os.Stat(path + ".damaged"); err != nil {
				t.Errorf("the damaged file is not kept: %v", err)
			}
		})
	}
}

func TestOpen_refusesASecondHost(t *testing.T) {
	root := t.TempDir()
	opened(t, root)
	if j, err := Open(root, slog.Default()); err == nil {
		_ = j.Close()
		t.Error("two hosts have one journal")
	}
	if _, err := os.Stat(filepath.Join(root, FileName+".damaged")); err == nil {
		t.Error("the other host's journal was moved away")
	}
}

func TestJournal_sleepsWhenNothingHappens(t *testing.T) {
	j := opened(t, t.TempDir())
	j.Record(Notice{About: claimRef("data"), Reason: "R"})
	j.writer.Wait() // ends by itself
	if entries, _, err := j.After(0); err != nil || len(entries) != 1 {
		t.Errorf("the writer left %v (%v)", entries, err)
	}
}

// What 500 pods at once write: about ten entries each.
func BenchmarkJournal_fiveHundredPods(b *testing.B) {
	j, err := Open(b.TempDir(), slog.Default())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for pod := range 500 {
			about := []Ref{claimRef(fmt.Sprint("data", pod)), {Kind: "Pod", Key: fmt.Sprint("default/", pod)}}
			for _, step := range []string{"create", "stage", "publish"} {
				entry := StepEntry{About: about, Step: step, Volume: about[0].Key, Driver: "local.holdfast.dev", Status: Started}
				j.Step(entry)
				entry.Status, entry.Took = Done, time.Millisecond
				j.Step(entry)
			}
			for _, reason := range []string{"ProvisioningSucceeded", "SuccessfulMountVolume", "Started"} {
				j.Record(Notice{About: about[1], Reason: reason, Message: "a text of some length, as they are"})
			}
		}
		j.drain()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*500*9), "µs/entry")
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkRecord(b *testing.B) {
	j, err := Open(b.TempDir(), slog.Default())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	for b.Loop() {
		j.Record(Notice{About: claimRef("data"), Reason: "R", Message: "m"})
	}
}
