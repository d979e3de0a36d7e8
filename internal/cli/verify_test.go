package cli

import (
	"testing"
	"time"
)

func TestIsOld_byTheTimeInTheName(t *testing.T) {
	name := runName()
	for _, c := range []struct {
		run  string
		now  time.Time
		want bool
	}{
		{name, time.Now(), false},
		{name, time.Now().Add(59 * time.Minute), false},
		{name, time.Now().Add(61 * time.Minute), true},
		{"holdfast-verify-20261128t050605z-7796", time.Date(2026, 11, 28, 6, 6, 6, 0, time.UTC), true},
		{"something else", time.Now().Add(time.Hour * 24 * 365), false}, // of a person: only --run includes it
	} {
		if got := isOld(c.run, c.now); got != c.want {
			t.Errorf("%s at %s: %t", c.run, c.now, got)
		}
	}
}
