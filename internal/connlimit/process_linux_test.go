package connlimit

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestPeer_isTheProcessOfAUnixSocket(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	conns := accepted(t, New(inner, Limits{}))
	c, err := net.Dial("unix", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if got, want := Peer((<-conns).(*connection).Conn), fmt.Sprint("process ", os.Getpid()); got != want {
		t.Errorf("it is %q; want %q", got, want)
	}
}
