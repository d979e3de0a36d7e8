package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestWrites_countsAnAccountsOwnAndNoLeases(t *testing.T) {
	line := func(user, verb, resource, sub string) []byte {
		return fmt.Appendf(nil, `{"user":{"username":%q},"verb":%q,"objectRef":{"resource":%q,"subresource":%q}}`, user, verb, resource, sub)
	}
	counted := audited{writes: writes{}}
	for _, l := range [][]byte{
		line("a", "create", "persistentvolumes", ""), line("a", "patch", "volumeattachments", "status"),
		line("a", "create", "events", ""), line("a", "update", "leases", ""), line("b", "create", "persistentvolumes", ""),
	} {
		if err := counted.add(l, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if want := "1 create events, 1 create persistentvolumes, 1 patch volumeattachments/status"; counted.writes.String() != want {
		t.Errorf("counted %s, want %s", counted.writes, want)
	}
	if objects, events := counted.writes.split(2); objects != 1 || events != 0.5 {
		t.Errorf("per item %v objects and %v events", objects, events)
	}
}

func TestWrites_haveTheBytesOfIntents(t *testing.T) {
	line := func(verb string, code int, object string) []byte {
		return fmt.Appendf(nil, `{"user":{"username":"a"},"verb":%q,"objectRef":{"resource":"configmaps","namespace":"n","name":"m"},`+
			`"responseStatus":{"code":%d},"responseObject":%s}`, verb, code, object)
	}
	large := fmt.Sprintf(`{"kind":"ConfigMap","metadata":{"name":"m","resourceVersion":"12345"},"data":{"k":%q}}`, strings.Repeat("x", 1000))
	counted := audited{writes: writes{}}
	for _, l := range [][]byte{
		line("update", 200, large), line("update", 409, `{"kind":"Status"}`), line("delete", 200, `{"kind":"Status"}`),
	} {
		if err := counted.add(l, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if got := counted.intents; got.writes != 2 || got.bytes < 1000 || got.bytes > 1200 {
		t.Errorf("counted %+v, want an update of 1,000 bytes and a deletion", got)
	}
}

func TestRender_writesADashWhereNothingIsKnown(t *testing.T) {
	got := render([]row{{work: "w", holdfast: "h"}})
	want := "| Work | Holdfast | Alternative | took | Ratio | Aim |\n| --- | --- | --- | --- | --- | --- |\n| w | h | - | - | - | - |\n"
	if got != want {
		t.Errorf("rendered %q", got)
	}
}
