package connlimit

import (
	"errors"
	"io"
	"net"
	"testing"
)

// accepted starts to accept, and returns the connections that were admitted.
func accepted(t *testing.T, l *Listener) <-chan net.Conn {
	t.Helper()
	conns := make(chan net.Conn, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		<-done
	})
	return conns
}

func dial(t *testing.T, address, from string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A peer with too many connections has the last one closed; another peer gets one, and so
// does the first after one of its own has ended.
func TestListener_admitsEachPeerItsShare(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := New(inner, Limits{PerPeer: 2, All: 3})
	conns := accepted(t, l)
	address := inner.Addr().String()
	first := dial(t, address, "127.0.0.1")
	served := <-conns
	dial(t, address, "127.0.0.1")
	<-conns
	closed := func(c net.Conn) {
		t.Helper()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a connection that is too many has data")
		}
	}
	closed(dial(t, address, "127.0.0.1"))
	dial(t, address, "127.0.0.2")
	<-conns
	closed(dial(t, address, "127.0.0.3")) // of all
	_ = first.Close()
	_ = served.Close()
	_ = served.Close() // counts once
	dial(t, address, "127.0.0.1")
	<-conns
	closed(dial(t, address, "127.0.0.3"))
}

func TestPeer_isTheHostOrTheProcess(t *testing.T) {
	if got := Peer(struct{ net.Conn }{}); got != Unknown {
		t.Errorf("of another kind it is %q", got)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := accepted(t, New(inner, Limits{}))
	c := dial(t, inner.Addr().String(), "127.0.0.2")
	served := <-conns
	if got := Peer(served.(*connection).Conn); got != "127.0.0.2" {
		t.Errorf("it is %q", got)
	}
	_ = c.Close()
	if _, err := io.ReadAll(served); err != nil {
		t.Error(err)
	}
}
