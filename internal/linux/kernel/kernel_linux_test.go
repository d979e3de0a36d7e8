package kernel

import "testing"

func TestAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"6.15.0":              true,
		"6.15-rc1":            true,
		"6.18.44-fc":          true,
		"7.0.1":               true,
		"6.14.11":             false,
		"6.8.0-31-generic":    false,
		"5.15.167-microsoft1": false,
		"4.4.0":               false,
		"":                    false,
		"x":                   false,
	} {
		if got := atLeast(release, 6, 15); got != want {
			t.Errorf("%q: got %t", release, got)
		}
	}
	if !AtLeast(5, 0) || AtLeast(1000, 0) {
		t.Error("the running kernel is not between 5.0 and 1000.0")
	}
}
