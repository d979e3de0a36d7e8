package workload

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// lateWriter takes its first bytes only when the command has ended long ago.
type lateWriter struct {
	ended func() bool
	waits bool
	bytes int
}

func (l *lateWriter) Write(data []byte) (int, error) {
	if l.waits {
		l.waits = false
		for !l.ended() {
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(drainLimit + drainLimit/2) // longer than the wait for output that may not come
	}
	l.bytes += len(data)
	return len(data), nil
}

// A client that is slow gets all of the output, although the command has ended.
func TestExec_theRestOfTheOutputWaitsForItsReader(t *testing.T) {
	shim := testShim(t)
	directory := t.TempDir()
	container := shell(t, "sleep 300")
	start(t, shim, container)
	const size = outputBuffer + 60<<10 // the rest of it fits into the pipe
	out := &lateWriter{waits: true, ended: func() bool {
		_, err := os.Stat(filepath.Join(directory, "written"))
		return err == nil
	}}
	code, err := shim.Exec(t.Context(), command(container, `head -c 94208 /dev/zero && touch `+directory+`/written`), Session{Stdout: out, Stderr: io.Discard})
	if err != nil || code != 0 || out.bytes != size {
		t.Errorf("code %d, %v, %d bytes of %d", code, err, out.bytes, size)
	}
}

// What a command left behind and writes now and then does not keep its caller waiting.
func TestExec_endsAlthoughAWriterIsLeftBehind(t *testing.T) {
	shim := testShim(t)
	container := shell(t, "sleep 300")
	start(t, shim, container)
	done := make(chan error, 1)
	go func() {
		code, err := shim.Exec(t.Context(), command(container, `(while :; do echo x; sleep 0.1; done) &`), Session{Stdout: io.Discard, Stderr: io.Discard})
		if err == nil && code != 0 {
			err = fmt.Errorf("code %d", code)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("exec waits for what the command left behind")
	}
}
