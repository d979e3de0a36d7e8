package main

import (
	"fmt"
	"testing"
)

func TestWrites_countsAnAccountsOwnAndNoLeases(t *testing.T) {
	line := func(user, verb, resource, sub string) []byte {
		return fmt.Appendf(nil, `{"user":{"username":%q},"verb":%q,"objectRef":{"resource":%q,"subresource":%q}}`, user, verb, resource, sub)
	}
	counted := writes{}
	for _, l := range [][]byte{
		line("a", "create", "persistentvolumes", ""), line("a", "patch", "volumeattachments", "status"),
		line("a", "create", "events", ""), line("a", "update", "leases", ""), line("b", "create", "persistentvolumes", ""),
	} {
		if err := counted.add(l, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if want := "1 create events, 1 create persistentvolumes, 1 patch volumeattachments/status"; counted.String() != want {
		t.Errorf("counted %s, want %s", counted, want)
	}
	if objects, events := counted.split(2); objects != 1 || events != 0.5 {
		t.Errorf("per item %v objects and %v events", objects, events)
	}
}

func TestRender_writesADashWhereNothingIsKnown(t *testing.T) {
	got := render([]row{{work: "w", holdfast: "h"}})
	want := "| Work | Holdfast | Alternative | took | Ratio | Aim |\n| --- | --- | --- | --- | --- | --- |\n| w | h | - | - | - | - |\n"
	if got != want {
		t.Errorf("rendered %q", got)
	}
}
