package mount

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func TestParseFlags_sortsByWhoUnderstandsThem(t *testing.T) {
	got, err := ParseFlags([]string{"ro", "noatime,nosuid", "defaults", "_netdev", "data=ordered",
		`context="system_u:object_r:container_file_t:s0:c10,c20"`, "noatime", "discard", `compress="zstd:3"`, "dirsync"})
	if err != nil {
		t.Fatal(err)
	}
	want := Flags{
		Attributes: []string{"ro", "noatime", "nosuid"},
		Options: []Option{
			{Key: "data", Value: "ordered", HasValue: true},
			{Key: "context", Value: "system_u:object_r:container_file_t:s0:c10,c20", HasValue: true},
			{Key: "discard"},
			{Key: "compress", Value: "zstd:3", HasValue: true},
			{Key: "dirsync"},
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

// The check sees the kernel's view of a flag in each spelling.
func TestParseFlags_quotesHideNothing(t *testing.T) {
	for _, flags := range [][]string{
		{`errors="panic"`}, {`fatal_errors="panic"`}, {`ro,errors="panic",noatime`}, {`errors=continue`, `errors="panic"`},
		{`"errors=panic"`}, {`"errors"=panic`}, {`errors=""panic""`}, {`errors=pan"ic"`}, {`errors="panic`}, {`errors=panic"`}, {`"errors="panic`},
		{`errors= panic`}, {`errors="panic "`}, {` errors=panic`}, {`errors =panic`}, {`"remount"`}, {`device="/dev/sdb"`}, {`"device"=/dev/sdb`},
		{`data="ordered,errors=panic"`}, {`data=ordered"`, `errors=panic"`}, {`"ro"`}, {`ro,"rw"`}, {`""`}, {`="x"`}, {`=x`},
		// The kernel applies these without regard to the value (fs/fs_context.c, vfs_parse_sb_flag).
		{"rw=x"}, {"ro", "rw=1"}, {"ro="}, {`ro="1"`}, {"sync=x"}, {"lazytime=0"}, {"noatime=1"}, {"defaults=1"}, {"ro", "defaults=x"},
	} {
		if got, err := ParseFlags(flags); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%q: %+v, %v", flags, got, err)
		}
	}
}

func FuzzParseFlags(f *testing.F) {
	for _, seed := range []string{`ro,context="a,b"`, `errors="panic"`, `"errors"="panic"`, "rw=x", "ro, rw", `a="b`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, flag string) {
		flags, err := ParseFlags([]string{flag})
		if err != nil && !errors.Is(err, backend.ErrInvalid) {
			t.Fatal(err)
		}
		for _, option := range flags.Options {
			_, bad := refused[option.Key]
			_, attribute := attributes[option.Key]
			if bad || attribute || strings.TrimSpace(option.Value) == "panic" || strings.Contains(option.String(), `"`) {
				t.Fatalf("%q let %q through", flag, option)
			}
		}
		if slices.Contains(flags.Attributes, "ro") && slices.ContainsFunc(flags.Options, func(o Option) bool { return o.Key == "rw" }) {
			t.Fatalf("%q is read-only and writable: %+v", flag, flags)
		}
	})
}
