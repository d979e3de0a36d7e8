package host_test

import (
	"regexp"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// victim is the path that operations work on in races: three directories deep, so
// that one on the way can be swapped.
const victim = pods + `\one\two`

// racers are the operations that change something at victim. Each is repeatable.
func racers(h api.Host, volume string) map[string]func() error {
	return map[string]func() error{
		"Mkdir":         func() error { return h.Filesystem.Mkdir(ctx(), victim+`\new\sub`) },
		"Rmdir":         func() error { return h.Filesystem.Rmdir(ctx(), victim, true) },
		"RmdirContents": func() error { return h.Filesystem.RmdirContents(ctx(), victim) },
		"Link":          func() error { return h.Filesystem.Link(ctx(), plugins, victim+`\new`) },
		"Link from":     func() error { return h.Filesystem.Link(ctx(), victim+`\sub`, pods+`\link`) },
		"Mount":         func() error { return h.Volumes.Mount(ctx(), volume, victim+`\empty`) },
		"Unmount":       func() error { return h.Volumes.Unmount(ctx(), volume, victim+`\mounted`) },
	}
}

// arrange creates in victim the files that all racers need. The names below it are those of
// outside as well: an operation that is led there finds what it looks for.
func arrange(t *testing.T) (w *world, volume string) {
	w = newWorld(t)
	for _, at := range []string{victim, outside, outside + `\two`} {
		w.mkdir(at+`\sub\deep`, at+`\empty`)
		w.do(w.WriteFile(at+`\data`, 1))
		w.do(w.WriteFile(at+`\sub\data`, 1))
	}
	return w, w.mount(victim+`\mounted`, "one")
}

// swap replaces a directory with a link, if Windows allows that while handles are
// open.
func (w *world) swap(path string, junction bool) (won bool) {
	if w.Rename(path, path+"-gone") != nil {
		return false
	}
	if junction {
		w.do(w.Junction(path, outside))
	} else {
		w.do(w.Symlink(path, outside, true))
	}
	return true
}

// At every call of every operation, every directory on the way and below
// is swapped for a link that leads outside. Nothing outside changes.
func TestRaces_leadNoOperationOutside(t *testing.T) {
	for name := range racers(api.Host{}, "") {
		t.Run(name, func(t *testing.T) {
			w, volume := arrange(t)
			stop := w.Record()
			if err := racers(w.api, volume)[name](); err != nil {
				t.Fatal(err)
			}
			calls, wins := len(stop()), 0
			for at := range calls {
				for _, path := range []string{
					pods, pods + `\one`, victim, victim + `\sub`, victim + `\sub\deep`, victim + `\empty`, victim + `\mounted`,
				} {
					if race(t, name, path, at, at%2 == 0) {
						wins++
					}
				}
			}
			if wins == 0 {
				t.Error("no race was won, so nothing was tested")
			}
		})
	}
}

func race(t *testing.T, name, path string, at int, junction bool) (won bool) {
	w, volume := arrange(t)
	defer w.host.Close()
	before, n := w.tree(outside), 0
	remove := w.Hook(func(windows.Call) {
		if n == at {
			won = w.swap(path, junction)
		}
		n++
	})
	err := racers(w.api, volume)[name]()
	remove()
	if after := w.tree(outside); after != before {
		t.Errorf("%s, with %s swapped before call %d, answered %v and left outside\n%s", name, path, at, err, after)
	}
	w.idle()
	return won
}

// A process that dies at any call leaves what its successor finishes, and nothing
// outside is touched.
func TestDeaths_areFinishedByTheNextProcess(t *testing.T) {
	for name := range racers(api.Host{}, "") {
		t.Run(name, func(t *testing.T) {
			w, volume := arrange(t)
			stop := w.Record()
			if err := racers(w.api, volume)[name](); err != nil {
				t.Fatal(err)
			}
			calls, want := len(stop()), w.tree(kubelet)
			for at := range calls {
				for _, action := range []windows.Action{windows.DieBefore, windows.DieAfter} {
					die(t, name, action, at+1, want)
				}
			}
		})
	}
}

func die(t *testing.T, name string, action windows.Action, at int, want string) {
	w, volume := arrange(t)
	before := w.tree(outside)
	fault := w.Inject(windows.Fault{Action: action, At: at, Times: 1})
	first := racers(w.api, volume)[name]()
	fault.Remove()
	w.start()
	defer w.host.Close()
	if err := racers(w.api, volume)[name](); err != nil {
		t.Errorf("%s, after a death at call %d (%s: %v): %v", name, at, action, first, err)
	}
	if got := w.tree(kubelet); masked(got) != masked(want) {
		t.Errorf("%s, after a death at call %d (%s), ends with\n%s\nand not\n%s", name, at, action, got, want)
	}
	if after := w.tree(outside); after != before {
		t.Errorf("%s, after a death at call %d (%s), left outside\n%s", name, at, action, after)
	}
	w.idle()
}

// masked hides the volumes' names, which are new on every machine.
func masked(tree string) string { return volumeName.ReplaceAllString(tree, "VOLUME") }

var volumeName = regexp.MustCompile(`Volume\{[^}]*\}`)
