package host

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPrefixer_wholeLinesOnly(t *testing.T) {
	var out bytes.Buffer
	p := NewPrefixer(&out, "main")
	for _, part := range []string{"on", "e\ntwo\n", "\n", "no end"} {
		if n, err := p.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	p.Flush()
	if want := "[main] one\n[main] two\n[main] \n[main] no end\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestPrefixer_keepsNoEndlessLine(t *testing.T) {
	var out bytes.Buffer
	p := NewPrefixer(&out, "main")
	if _, err := p.Write([]byte(strings.Repeat("x", maximumLine))); err != nil {
		t.Fatal(err)
	}
	if out.Len() == 0 || len(p.line) != 0 {
		t.Errorf("%d bytes are kept", len(p.line))
	}
}

func TestBroadcast_everyContainerGetsTheSignalAndALaterOneTheEnd(t *testing.T) {
	signals := make(chan os.Signal)
	b := newBroadcast(signals, 3)
	defer b.stop()
	first, second := b.subscribe(), b.subscribe()
	signals <- syscall.SIGALRM
	signals <- syscall.SIGTERM
	got := func(from <-chan os.Signal) os.Signal {
		select {
		case sent := <-from:
			return sent
		case <-time.After(time.Minute):
			t.Fatal("no signal came")
			return nil
		}
	}
	for _, from := range []<-chan os.Signal{first, second} {
		if a, b := got(from), got(from); a != syscall.SIGALRM || b != syscall.SIGTERM {
			t.Errorf("got %v and %v", a, b)
		}
	}
	if sent := got(b.subscribe()); sent != syscall.SIGTERM {
		t.Errorf("who came later got %v", sent)
	}
}

// A signal that comes while a container starts ends it, too.
func TestBroadcast_keepsWhatEndsARunForWhoStartsLater(t *testing.T) {
	for _, sent := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		b := newBroadcast(nil, 1)
		b.send(syscall.SIGALRM) // is for who is there
		b.send(sent)
		select {
		case got := <-b.subscribe():
			if got != sent {
				t.Errorf("%v came as %v", sent, got)
			}
		default:
			t.Errorf("%v is lost", sent)
		}
		b.stop()
	}
}
