package page

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// browser is what a browser does with patches: elements by id, with the rows of each
// table in their order.
type browser struct {
	html map[string]string
	rows map[string][]string
}

func newBrowser(fragments []fragment) *browser {
	b := &browser{html: map[string]string{}, rows: map[string][]string{}}
	for _, f := range fragments {
		b.html[f.id] = f.html
		if f.parent != "" {
			b.rows[f.parent] = append(b.rows[f.parent], f.id)
		}
	}
	return b
}

func (b *browser) apply(p patch) error {
	_, exists := b.html[p.ID]
	switch p.Op {
	case "replace":
		if !exists {
			return fmt.Errorf("%s is replaced and does not exist", p.ID)
		}
	case "remove":
		if !exists {
			return fmt.Errorf("%s is removed and does not exist", p.ID)
		}
		delete(b.html, p.ID)
		for parent, rows := range b.rows {
			b.rows[parent] = slices.DeleteFunc(rows, func(id string) bool { return id == p.ID })
		}
		return nil
	case "insert":
		at := 0
		if p.After != "" {
			at = slices.Index(b.rows[p.Parent], p.After) + 1
			if at == 0 {
				return fmt.Errorf("%s is inserted after %s, which does not exist", p.ID, p.After)
			}
		}
		b.rows[p.Parent] = slices.Insert(b.rows[p.Parent], at, p.ID)
	}
	b.html[p.ID] = p.HTML
	return nil
}

// Whatever changes, the patches lead to what is drawn, and nothing is sent for what
// stays.
func TestPatches_leadToWhatIsDrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) []fragment {
			fragments := []fragment{{id: "title", html: rapid.SampledFrom([]string{"a", "b"}).Draw(t, label+" title")}}
			for _, table := range []string{"one", "two"} {
				names := rapid.SliceOfDistinct(rapid.IntRange(0, 9), rapid.ID).Draw(t, label+" "+table)
				slices.Sort(names) // tables are in the order of their keys
				for _, name := range names {
					html := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "row")
					fragments = append(fragments, fragment{id: fmt.Sprint(table, name), parent: table, html: html})
				}
			}
			return fragments
		}
		before, after := draw("before"), draw("after")
		list := patches(drawnOf(before), after)
		got, want := newBrowser(before), newBrowser(after)
		for _, p := range list {
			if err := got.apply(p); err != nil {
				t.Fatal(err)
			}
		}
		for _, table := range []string{"one", "two"} {
			if !slices.Equal(got.rows[table], want.rows[table]) {
				t.Fatalf("the rows are %v, want %v", got.rows[table], want.rows[table])
			}
		}
		changed := 0
		for id, html := range want.html {
			if got.html[id] != html {
				t.Fatalf("%s is %q, want %q", id, got.html[id], html)
			}
			if was, exists := newBrowser(before).html[id]; !exists || was != html {
				changed++
			}
		}
		for _, f := range before {
			if _, stays := want.html[f.id]; !stays {
				changed++
			}
		}
		if len(list) != changed {
			t.Fatalf("%d patches for %d changes", len(list), changed)
		}
	})
}

func TestSentence_isOne(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "the claim waits": "The claim waits.", "Wait.": "Wait.", "ärger": "Ärger.", "  x \n": "X.",
	} {
		if got := sentence(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestAgeText_changesSeldom(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]string{
		-time.Hour: "<1m", 0: "<1m", 59 * time.Second: "<1m", time.Minute: "1m", 119*time.Minute + 59*time.Second: "119m",
		2 * time.Hour: "2h", 48*time.Hour - 1: "47h", 48 * time.Hour: "2d",
	} {
		if got := ageText(now.Add(-age), now); got != want {
			t.Errorf("%v is %q, want %q", age, got, want)
		}
	}
	if got := ageText(time.Time{}, now); got != "" {
		t.Errorf("an unknown time is %q", got)
	}
}
