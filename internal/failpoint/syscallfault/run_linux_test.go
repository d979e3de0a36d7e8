package syscallfault

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRun_failsTheNamedCallOfTheFunctionAlone(t *testing.T) {
	dir := t.TempDir()
	write := func() error { return os.WriteFile(filepath.Join(dir, "file"), []byte("some bytes"), 0o600) }
	calls, err := Run([]string{dir}, func(Call) unix.Errno { return 0 }, func() {
		if err := write(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(calls) < 2 || calls[0].Name != "openat" || calls[0].Path != filepath.Join(dir, "file") {
		t.Fatalf("calls %v; want openat first", calls)
	}
	for _, call := range calls {
		if call.Name != "openat" && call.Name != "write" {
			continue
		}
		var got error
		if _, err := Run([]string{dir}, Once(call.Number, unix.EUCLEAN), func() { got = write() }); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(got, unix.EUCLEAN) {
			t.Errorf("with %s failing: %v", call, got)
		}
	}
	if err := write(); err != nil {
		t.Errorf("after the run: %v", err)
	}
}

func TestRun_fromANumberOnEverythingFails(t *testing.T) {
	dir := t.TempDir()
	var failed int
	_, err := Run([]string{dir}, From(2, unix.EROFS), func() {
		for range 3 {
			if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); errors.Is(err, unix.EROFS) {
				failed++
			}
		}
	})
	if err != nil || failed != 2 {
		t.Fatalf("%d of 3 calls failed, %v; want 2", failed, err)
	}
}

// The scheduler and the collector work on while the function is asked about.
func TestRun_besideTheCollector(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		_, err := Run([]string{dir}, func(Call) unix.Errno { return 0 }, func() {
			for range 20 {
				_ = os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<16), 0o600)
				runtime.GC()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRun_pretendsThatACallSucceeded(t *testing.T) {
	dir := t.TempDir()
	var made error
	_, err := Run([]string{dir}, func(Call) unix.Errno { return Pretend }, func() { made = os.Mkdir(filepath.Join(dir, "directory"), 0o700) })
	if err != nil || made != nil {
		t.Fatal(err, made)
	}
	if _, err := os.Stat(filepath.Join(dir, "directory")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the call was executed: %v", err)
	}
}

func TestRun_passesAPanicOn(t *testing.T) {
	defer func() {
		if got := recover(); got != "given up" {
			t.Errorf("recovered %v", got)
		}
	}()
	_, _ = Run([]string{t.TempDir()}, func(Call) unix.Errno { return 0 }, func() { panic("given up") })
	t.Error("the panic was lost")
}
