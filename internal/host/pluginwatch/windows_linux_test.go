package pluginwatch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Names in events of creation and of removal are normalized as Windows spells paths
// before they are compared.
func TestConcerns_takesAllSpellingsOfWindows(t *testing.T) {
	for _, directory := range []string{`C:\var\lib\kubelet\plugins_registry`, `\var\lib\kubelet\plugins_registry`, `/var/lib/kubelet/plugins_registry/`, `c:/var/lib/kubelet/plugins_registry\`} {
		w := &Watcher{spelling: ofWindows(), directory: ofWindows().normalize(directory)}
		for name, want := range map[string]bool{
			`C:\var\lib\kubelet\plugins_registry\x-reg.sock`:     true,
			`c:\VAR\lib\kubelet\Plugins_Registry\x-reg.sock`:     true,
			`\var\lib\kubelet\plugins_registry\x-reg.sock`:       true,
			`\var\lib\kubelet\plugins_registry/x-reg.sock`:       true,
			`/var/lib/kubelet/plugins_registry/sub/x-reg.sock`:   true,
			`C:\var\lib\kubelet\plugins_registry`:                true,
			`C:\var\lib\kubelet\plugins_registry\`:               true,
			`C:\var\lib\kubelet\plugins_registry-evil\x`:         false,
			`C:\var\lib\kubelet\plugins`:                         false,
			`D:\var\lib\kubelet\plugins_registry\x-reg.sock`:     false,
			`\\server\var\lib\kubelet\plugins_registry\x`:        false,
			`C:\var\lib\kubelet`:                                 false,
			`lib\kubelet\plugins_registry\x`:                     false,
			`C:\var\lib\kubelet\plugins_registr\plugins_registr`: false,
		} {
			for _, operation := range []fsnotify.Op{fsnotify.Create, fsnotify.Remove, fsnotify.Rename} {
				if got := w.concerns(fsnotify.Event{Name: name, Op: operation}); got != want {
					t.Errorf("%s of %s concerns %s: %t", operation, name, w.directory, got)
				}
			}
		}
	}
}

// The mode decides if it marks the kind; otherwise the file is probed.
func TestClassifyMode_dialsWhereTheModeIsNotASocket(t *testing.T) {
	for mode, want := range map[fs.FileMode]kind{
		fs.ModeSocket | 0o600:       isSocket,
		0o600:                       maybe,
		fs.ModeIrregular:            maybe,
		fs.ModeDir | 0o755:          notSocket,
		fs.ModeSymlink:              notSocket,
		fs.ModeDevice:               notSocket,
		fs.ModeDir | fs.ModeSymlink: notSocket,
	} {
		if got := classifyMode(mode); got != want {
			t.Errorf("%v is %d, not %d", mode, got, want)
		}
	}
}

// If Stat of a socket fails, statOf calls Lstat; a missing file stays missing.
func TestStatOf_fallsBackToLstat(t *testing.T) {
	here, err := os.Lstat(".")
	if err != nil {
		t.Fatal(err)
	}
	works := func(string) (fs.FileInfo, error) { return here, nil }
	fails := func(err error) func(string) (fs.FileInfo, error) {
		return func(string) (fs.FileInfo, error) { return nil, err }
	}
	unreadable := errors.New("ERROR_CANT_ACCESS_FILE (1920)")
	if info, err := statOf(fails(unreadable), works, "x"); info != here || err != nil {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := statOf(fails(fs.ErrNotExist), works, "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := statOf(fails(unreadable), fails(fs.ErrPermission), "x"); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

// doubtful is a watched directory on a system whose modes do not mark sockets.
func doubtful(t *testing.T, dial func(context.Context, string) error) *watched {
	t.Helper()
	directory := shortDirectory(t)
	mkdir(t, directory)
	watched := &watched{t: t, directory: directory, changes: make(chan Change)}
	watcher := New(directory, watched.changes, slog.New(slog.DiscardHandler))
	watcher.classify = func(path string) (Identity, kind, error) {
		identity, what, err := classify(path)
		if strings.HasSuffix(path, ".late") {
			info, err := os.Lstat(path)
			if err != nil {
				return Identity{}, notSocket, err
			}
			return Identity{seconds: info.ModTime().UnixNano()}, maybe, nil
		}
		return identity, what, err
	}
	watcher.probes = newProbes(dial)
	watcher.probes.every, watcher.probes.limit = 5*time.Millisecond, time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return watched
}

// A file that is not a socket by its mode is dialled repeatedly, and is
// one when a server answers in time. Others come and go meanwhile.
func TestRun_dialsWhatMayBeASocket(t *testing.T) {
	var dials atomic.Int32
	release := make(chan struct{})
	w := doubtful(t, func(_ context.Context, path string) error {
		if filepath.Base(path) == "never.late" {
			return errors.New("refused")
		}
		if dials.Add(1) < 3 {
			return errors.New("refused") // the first dial of a fresh socket
		}
		<-release
		return nil
	})
	w.scanned()
	for _, name := range []string{"never.late", "a.late"} {
		if err := os.WriteFile(w.path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for dials.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	socket(t, w.path("b.sock")) // while a dial hangs
	w.comes("b.sock")
	remove(t, w.path("b.sock"))
	w.goes("b.sock")
	close(release)
	w.comes("a.late")
	before := dials.Load()
	w.quiet()
	if now := dials.Load(); now != before {
		t.Errorf("a socket that answered was dialled %d times more", now-before)
	}
	remove(t, w.path("a.late"))
	w.goes("a.late")
}

func TestProbes_forgetRemovedFiles(t *testing.T) {
	answers := atomic.Bool{}
	p := newProbes(func(context.Context, string) error {
		if answers.Load() {
			return nil
		}
		return errors.New("refused")
	})
	p.every, p.limit = time.Millisecond, 10*time.Millisecond
	defer p.close()
	ask := func() kind {
		p.ask(t.Context(), "x", Identity{inode: 1})
		<-p.changed
		return p.ask(t.Context(), "x", Identity{inode: 1})
	}
	if got := ask(); got != notSocket {
		t.Errorf("a file without a server is %d", got)
	}
	answers.Store(true)
	if got := p.ask(t.Context(), "x", Identity{inode: 1}); got != notSocket {
		t.Error("the result did not last")
	}
	p.forget(map[string]bool{"x": true}, true) // as once a minute
	if got := ask(); got != isSocket {
		t.Errorf("it is %d with a server", got)
	}
	p.forget(map[string]bool{"x": true}, true)
	if got := p.ask(t.Context(), "x", Identity{inode: 1}); got != isSocket {
		t.Error("a socket was asked again")
	}
	if got := p.ask(t.Context(), "x", Identity{inode: 2}); got != maybe {
		t.Error("another file has the result of the one before")
	}
	<-p.changed
}
