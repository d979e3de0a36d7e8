package server

import (
	"errors"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// The pipes have a descriptor of their own.
func TestDescriptor(t *testing.T) {
	const base = "D:P(A;;GA;;;SY)(A;;GA;;;BA)"
	for _, c := range []struct {
		sids []string
		want string // "" is refused
	}{
		{nil, base},
		{[]string{"S-1-5-19"}, base + "(A;;GRGW;;;S-1-5-19)"},
		{[]string{"s-1-5-21-1004336348-1177238915-682003330-512"}, base + "(A;;GRGW;;;S-1-5-21-1004336348-1177238915-682003330-512)"},
		{[]string{"S-1-5-019", "S-1-5-19"}, base + "(A;;GRGW;;;S-1-5-19)"},
		{[]string{"S-1-5-93-2-1", "S-1-5-19"}, base + "(A;;GRGW;;;S-1-5-93-2-1)(A;;GRGW;;;S-1-5-19)"},
		{[]string{""}, ""},
		{[]string{"WD"}, ""},
		{[]string{"BU"}, ""},
		{[]string{"Everyone"}, ""},
		{[]string{"S-1-1-0"}, ""},
		{[]string{"S-1-01-00"}, ""},
		{[]string{"S-1-5-7"}, ""},
		{[]string{"S-1-5-11"}, ""},
		{[]string{"S-1-5-32-545"}, ""},
		{[]string{"S-1-5-93-2-2"}, ""},
		{[]string{"S-1-5"}, ""},
		{[]string{"S-2-5-19"}, ""},
		{[]string{"S-1-5-19)(A;;GA;;;WD"}, ""},
		{[]string{"S-1-5-19\n"}, ""},
		{[]string{" S-1-5-19"}, ""},
		{[]string{"S-1-5-4294967296"}, ""},
		{[]string{"S-1-999999999999999-1"}, ""},
		{[]string{"S-1-5-1-2-3-4-5-6-7-8-9-10-11-12-13-14-15-16"}, ""},
	} {
		got, err := Descriptor(c.sids)
		if c.want == "" {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%q is accepted: %s, %v", c.sids, got, err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%q gives %s, %v; want %s", c.sids, got, err, c.want)
		}
	}
}
