//go:build machine

package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// check holds the machine to what it acknowledged before it went off. All units are
// up when it is called.
func (l *loaded) check() {
	l.t.Helper()
	l.timed("writers", l.awaitWriters)
	reports := l.Reports()
	for _, name := range writers {
		// The first record of a boot is the one after the last good one.
		if first := firstRecord(reports, name); first <= l.records[name] {
			l.t.Errorf("%s continues with record %d; %d was acknowledged", name, first, l.records[name])
		}
	}
	if got := l.shell("cat /srv/always/file"); got != "kept" {
		l.t.Errorf("the file of the permanent hold has %q", got)
	}
	l.timed("growth", l.checkGrowth)
	l.timed("objects", l.checkObjects)
	l.timed("pool", l.checkPool)
	if got := l.mounted(); got != l.mounts {
		l.t.Errorf("mounts:\n%s\nwant those of the first boot:\n%s", got, l.mounts)
	}
	if got := l.attached(); got != l.devices {
		l.t.Errorf("loop devices of:\n%s\nwant those of the first boot:\n%s", got, l.devices)
	}
	l.timed("store", l.checkStore)
}

// checkGrowth compares the filesystem of the claim "data" with the size that was
// acknowledged.
func (l *loaded) checkGrowth() {
	l.t.Helper()
	text := l.shell(`dumpe2fs -h "$(findmnt -no SOURCE /srv/data)" 2>/dev/null | sed -n 's/^Block \(count\|size\): *//p'`)
	var blocks, size int
	if _, err := fmt.Sscan(text, &blocks, &size); err != nil {
		l.t.Fatalf("the size of the filesystem is %q: %v", text, err)
	}
	if blocks*size < l.grown {
		l.t.Errorf("the filesystem of data has %d bytes; its growth to %d was acknowledged", blocks*size, l.grown)
	}
}

// object is what is read of any object.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		VolumeName string
		CSI        struct{ VolumeHandle string }
	}
	Status struct {
		Phase          string
		ReadyToUse     bool
		SnapshotHandle string
	}
}

// objects are those of a kind, by "KIND/NAME" as the load reports them.
func (l *loaded) objects(kind string) map[string]object {
	l.t.Helper()
	var list struct{ Items []object }
	if err := json.Unmarshal([]byte(l.shell("holdfast get %s -o json", kind)), &list); err != nil {
		l.t.Fatal(err)
	}
	found := map[string]object{}
	for _, o := range list.Items {
		found[kind+"/"+o.Metadata.Name] = o
	}
	return found
}

// checkObjects compares the objects with those that were acknowledged, deletes the
// load's, and compares the pool with what is left.
func (l *loaded) checkObjects() {
	l.t.Helper()
	found := l.objects("pvc")
	maps.Copy(found, l.objects("volumesnapshot"))
	var ours []string
	for name, o := range found {
		if !strings.Contains(name, "/c-") {
			continue
		}
		ours = append(ours, name)
		if !l.made[name] && !l.uncertain[name] {
			l.t.Errorf("%s exists; its deletion was acknowledged, or it was never requested", name)
		}
		if l.made[name] && o.Status.Phase != "Bound" && !o.Status.ReadyToUse {
			l.t.Errorf("%s was acknowledged and is not ready: %+v", name, o)
		}
	}
	for name := range l.made {
		if _, ok := found[name]; !ok {
			l.t.Errorf("%s was acknowledged and does not exist", name)
		}
	}
	if len(ours) > 0 {
		slices.Sort(ours)
		l.shell("holdfast delete %s", strings.Join(ours, " "))
	}
	clear(l.made)
	clear(l.uncertain)
}

// checkPool waits until the pool has the volumes of the objects and nothing else.
func (l *loaded) checkPool() {
	l.t.Helper()
	var pool, want string
	for deadline := time.Now().Add(patience); ; {
		var handles []string
		for _, o := range l.objects("pv") {
			handles = append(handles, o.Spec.CSI.VolumeHandle)
		}
		slices.Sort(handles)
		want = strings.Join(handles, "\n")
		pool = l.shell("cd /var/lib/holdfast/pool; ls volumes snapshots trash groups 2>/dev/null | grep -v -e : -e '^$' | sort || true")
		if pool == want || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Second) // a deletion goes on after its answer
	}
	if pool != want {
		l.t.Errorf("the pool has\n%s\nand the objects name\n%s", pool, want)
	}
}

// checkStore has the store read while no host runs; the units must not notice.
func (l *loaded) checkStore() {
	l.t.Helper()
	l.shell("systemctl stop holdfast-host; holdfast host check; systemctl start holdfast-host; systemctl is-active foo sql scribble")
}
