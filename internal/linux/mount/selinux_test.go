package mount

import (
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestContext_ofFlagsAndOfMounts(t *testing.T) {
	const label = "system_u:object_r:container_file_t:s0:c10,c20"
	flags, err := ParseFlags([]string{"noatime", `context="` + label + `"`})
	if err != nil || flags.Context() != label {
		t.Errorf("the flags request %q, %v", flags.Context(), err)
	}
	if none, _ := ParseFlags([]string{`fscontext="` + label + `"`}); none.Context() != "" {
		t.Errorf("fscontext is taken for context: %q", none.Context())
	}
	for options, want := range map[string]string{
		`rw,context="` + label + `",data=ordered`:     label,
		`rw,context=system_u:object_r:nfs_t:s0`:       "system_u:object_r:nfs_t:s0",
		`rw,seclabel,data=ordered`:                    "",
		`rw`:                                          "",
		`rw,rootcontext=a:b:c:s0,defcontext=d:e:f:s0`: "",
	} {
		if got := ContextOf(&mountinfo.Info{VFSOptions: options}); got != want {
			t.Errorf("%s: %q, want %q", options, got, want)
		}
	}
}

// The kernel shows a label in its own form.
func TestSameContext(t *testing.T) {
	const head = "system_u:object_r:container_file_t:"
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"", "", true},
		{head + "s0:c1,c2", head + "s0:c1,c2", true},
		{head + "s0:c26,c5", head + "s0:c5,c26", true},
		{head + "s0:c3,c2,c1", head + "s0:c1.c3", true},
		{head + "s0-s0", head + "s0", true},
		{head + "s0-s0:c0.c1023", head + "s0-s0:c0.c1023", true},
		{head + "s0:c1,c2", head + "s0:c1,c3", false},
		{head + "s0:c1,c2", head + "s1:c1,c2", false},
		{head + "s0", head + "s0:c1", false},
		{head + "s0-s0:c1", head + "s0", false},
		{"user_u:object_r:container_file_t:s0", head + "s0", false},
		{"system_u:object_r:other_t:s0", head + "s0", false},
		{"", head + "s0", false},
		{"a:b:c", "a:b:d", false},
		{head + "s0:x1", head + "s0:x2", false},
		{head + "s0:c1.c99999999", head + "s0:c1", false},
	} {
		if SameContext(c.a, c.b) != c.want || SameContext(c.b, c.a) != c.want {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.want)
		}
	}
}

// Labels that are equal to the kernel have one canonical form, which is its own.
func TestCanonicalContext(t *testing.T) {
	const kind = "system_u:object_r:container_file_t:"
	for level, want := range map[string]string{
		"s0": "s0", "s0:c1": "s0:c1", "s0:c2,c1": "s0:c1,c2", "s0:c3,c2,c1": "s0:c1.c3", "s0:c1.c2": "s0:c1,c2", "s0:c5,c1.c3,c2": "s0:c1.c3,c5",
		"s0-s0": "s0", "s0:c1-s0:c1": "s0:c1", "s0-s0:c0.c1023": "s0-s0:c0.c1023", "s0:d1": "s0:d1", "s0:c1024": "s0:c1024", "": "",
	} {
		got := CanonicalContext(kind + level)
		if got != kind+want || !SameContext(got, kind+level) {
			t.Errorf("%q becomes %q, want %q", level, got, kind+want)
		}
	}
	for _, other := range []string{"", "a", "a:b:c"} {
		if got := CanonicalContext(other); got != other {
			t.Errorf("%q becomes %q", other, got)
		}
	}
}
