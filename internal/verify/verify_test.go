package verify

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func check(id string, result Result) Check {
	return Check{Assumption{ID: id, Statement: "it is so", Otherwise: "it breaks"}, func(context.Context) Result { return result }}
}

func TestRun_keepsTheOrderAndTheOutcomes(t *testing.T) {
	var found []string
	Run(t.Context(), []Check{
		check("a", Held("1 s")), check("b", Differed("code X")), check("c", Skipped("no right")),
	}, func(f Finding) { found = append(found, f.ID+" "+string(f.Outcome)+" "+f.Seen) })
	if want := []string{"a holds 1 s", "b differs code X", "c not tested no right"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

// A check that an interruption ends has failed because of it, which says nothing about the
// assumption.
func TestRun_anInterruptionProvesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	checks := []Check{
		{Assumption{ID: "under way"}, func(context.Context) Result { cancel(); return Differed("cancelled") }},
		check("later", Held("")),
	}
	Run(ctx, checks, func(f Finding) {
		if f.Outcome != Untested {
			t.Errorf("%s: %s (%s)", f.ID, f.Outcome, f.Seen)
		}
	})
}

func TestLedger_removesTheYoungestFirstAndNamesWhatStays(t *testing.T) {
	var l Ledger
	var removed []string
	remove := func(id string, err error) func(context.Context) error {
		return func(context.Context) error { removed = append(removed, id); return err }
	}
	l.Add("volume", "v1", "delete v1", remove("v1", nil))
	l.Add("volume", "v2", "delete v2", remove("v2", errors.New("it is in use by 123456789012")))
	l.Add("snapshot", "s1", "delete s1", remove("s1", nil))
	l.Add("snapshot", "s2", "delete s2", remove("s2", nil))
	l.AddLasting("partition", "p1", "clear p1")
	l.Removed("s1")
	err := l.CleanUp(t.Context())
	if want := []string{"s2", "v2", "v1"}; !slices.Equal(removed, want) {
		t.Errorf("removed %q, want %q", removed, want)
	}
	for _, part := range []string{"volume v2", "in use", "delete v2"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	for _, r := range l.Resources() {
		if r.Removed != (r.ID != "v2" && r.ID != "p1") || r.Lasts != (r.ID == "p1") || strings.Contains(r.Problem, "123456789012") {
			t.Errorf("%+v", r)
		}
	}
	removed = nil
	_ = l.CleanUp(t.Context())
	if want := []string{"v2"}; !slices.Equal(removed, want) {
		t.Errorf("the second clean-up removed %q, want %q", removed, want)
	}
}

func TestReport_hasNoSecretAndNoAccount(t *testing.T) {
	secrets := []string{
		"123456789012", "AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE", strings.Repeat("aB3+/", 20) + "==", "user:hunter2",
	}
	text := "arn:aws:iam::123456789012:role/x called with AKIAIOSFODNN7EXAMPLE and ASIAIOSFODNN7EXAMPLE: " +
		"Encoded authorization failure message: " + secrets[3] + " at https://user:hunter2@proxy/"
	r := Report{Started: time.Now(), Findings: []Finding{{Assumption{ID: "a"}, Differs, text, 1}}}
	var file, shown bytes.Buffer
	if err := errors.Join(r.Write(&file), r.Findings[0].Print(&shown)); err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(file.String(), secret) || strings.Contains(shown.String(), secret) {
			t.Errorf("the report has %q:\n%s\n%s", secret, &file, &shown)
		}
	}
	if !strings.Contains(file.String(), "role/x called with") {
		t.Errorf("the rest of the text is gone: %s", &file)
	}
}
