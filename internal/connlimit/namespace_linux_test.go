package connlimit

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// asServer in the environment makes this process the server of TestPeer_outsideOfThePIDNamespace.
const asServer = "HOLDFAST_TEST_CONNLIMIT_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) == "" {
		os.Exit(m.Run())
	}
	if err := answerWithPeers(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// answerWithPeers accepts two connections on descriptor 3, with a share of one, and answers
// each with the name of its peer.
func answerWithPeers() error {
	inner, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	l := New(inner, Limits{PerPeer: 1, All: 2})
	for range 2 {
		accepted, err := l.Accept()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(accepted, "%q\n", Peer(accepted)); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the test has read both answers
	return err
}

// In a container, the kubelet and the processes of other containers are outside of the
// server's PID namespace. They have no share of their own, and all connections.
func TestPeer_outsideOfThePIDNamespace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	stdin, alive, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	namespaces := uintptr(syscall.CLONE_NEWPID)
	if os.Getuid() != 0 {
		namespaces |= syscall.CLONE_NEWUSER
	}
	server, err := os.StartProcess("/proc/self/exe", os.Args[:1], &os.ProcAttr{
		Env: append(os.Environ(), asServer+"=1"), Files: []*os.File{stdin, os.Stdout, os.Stderr, file},
		Sys: &syscall.SysProcAttr{Cloneflags: namespaces},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{stdin, file} {
		_ = c.Close()
	}
	var answers []string
	for range 2 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		buffer := make([]byte, 100)
		n, err := c.Read(buffer)
		if err != nil {
			_ = server.Kill() // it waits for the connection that it refused
			t.Errorf("after %q: %v", answers, err)
			break
		}
		answers = append(answers, string(buffer[:n]))
	}
	_ = alive.Close()
	_ = listener.Close()
	if state, err := server.Wait(); err != nil || !state.Success() {
		t.Errorf("the server: %v, %v", state, err)
	}
	if want := []string{"\"\"\n", "\"\"\n"}; fmt.Sprint(answers) != fmt.Sprint(want) {
		t.Errorf("the peers are %q; want %q", answers, want)
	}
}
