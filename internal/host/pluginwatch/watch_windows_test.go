package pluginwatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

// Windows' own events report files that come and go below the directory, whichever
// way the directory was spelled. Each dial here succeeds: wine has no sockets.
func TestRun_reportsFilesThatComeAndGo(t *testing.T) {
	dir := filepath.Join(winetest.Dir(t), "registry")
	changes := make(chan Change)
	w := New(strings.ReplaceAll(dir, `\`, "/"), changes, slog.New(slog.DiscardHandler))
	w.probes = newProbes(func(context.Context, string) error { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	next := func() Change {
		select {
		case change := <-changes:
			return change
		case err := <-ended:
			t.Fatalf("the watcher ended: %v", err)
		case <-time.After(20 * time.Second):
			t.Fatal("no change is reported")
		}
		return Change{}
	}
	if !next().Scanned {
		t.Fatal("the empty directory was not reported first")
	}
	path := filepath.Join(dir, "x-reg.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if came := next(); came.Removed || came.Socket.Path != path {
		t.Errorf("it came as %+v", came)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if went := next(); !went.Removed || went.Socket.Path != path {
		t.Errorf("it went as %+v", went)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
