//go:build machine

package machine

import (
	"testing"
)

// overwrite has a file with "old" that is durable, and writes "new" over it, past
// the machine's own cache: the disk has that, and no flush follows. It is a format.
const overwrite = `cd /var/lib/holdfast
	printf 'old\n%%.0s' {1..1024} >file; sync file; sync .
	printf 'new\n%%.0s' {1..1024} >/run/new; dd if=/run/new of=file bs=4096 conv=notrunc oflag=direct status=none
	head -c 3 file`

// TestMachine_losesWhatWasNotFlushed cuts the power after a file was synced and then
// written without a flush: of the machine's disk, the one stays and the other goes.
// With all of the cache kept, the other stays.
func TestMachine_losesWhatWasNotFlushed(t *testing.T) {
	l := newLab(t, "base")
	l.boot()
	for _, c := range []struct {
		keep float64
		want string
	}{{0, "old"}, {1, "new"}} {
		if got := l.shell(overwrite); got != "new" {
			t.Fatalf("before the power cut the file has %q", got)
		}
		l.cut(c.keep)
		l.boot()
		if got := l.shell("head -c 3 /var/lib/holdfast/file"); got != c.want {
			t.Errorf("the file has %q after a power cut that keeps %v of the unflushed writes; want %q", got, c.keep, c.want)
		}
	}
}
