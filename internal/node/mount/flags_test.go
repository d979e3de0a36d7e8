package mount

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func TestParseFlags_sortsByWhoUnderstandsThem(t *testing.T) {
	got, err := ParseFlags([]string{"ro", "noatime,nosuid", "defaults", "_netdev", "data=ordered",
		`context="system_u:object_r:container_file_t:s0:c10,c20"`, "noatime", "rw=x", "discard"})
	if err != nil {
		t.Fatal(err)
	}
	want := Flags{
		Attributes: []string{"ro", "noatime", "nosuid"},
		Options: []Option{
			{Key: "data", Value: "ordered", HasValue: true},
			{Key: "context", Value: "system_u:object_r:container_file_t:s0:c10,c20", HasValue: true},
			{Key: "rw", Value: "x", HasValue: true},
			{Key: "discard"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestParseFlags_refuses(t *testing.T) {
	for _, flags := range [][]string{
		{""}, {"a,,b"}, {"remount"}, {"bind"}, {"rbind"}, {"move"}, {"loop"}, {"loop=/dev/loop0"}, {"offset=512"},
		{"device=/dev/sdb"}, {"logdev=/dev/sdb"}, {"journal_dev=0x801"}, {"shared"}, {"rprivate"},
		{"errors=panic"}, {"fatal_errors=panic"}, {"ro", "rw"}, {"suid,nosuid"}, {"noatime", "strictatime"},
		{"sync", "async"}, {"discard", "nodiscard"}, {"x\x00"}, {"a\nb"}, {"source=/dev/sdb"},
	} {
		if got, err := ParseFlags(flags); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%q: %+v, %v", flags, got, err)
		}
	}
}

func FuzzParseFlags(f *testing.F) {
	f.Add(`ro,context="a,b"`)
	f.Fuzz(func(t *testing.T, flag string) {
		flags, err := ParseFlags([]string{flag})
		if err != nil && !errors.Is(err, backend.ErrInvalid) {
			t.Fatal(err)
		}
		for _, option := range flags.Options {
			if _, bad := refused[option.Key]; bad {
				t.Fatalf("%q let %q through", flag, option)
			}
		}
	})
}
