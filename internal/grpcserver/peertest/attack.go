// Package peertest has hostile peers of a gRPC or HTTP server: silent, slow, greedy and
// of another protocol. Attack runs them against a server of the test, from a process of
// their own, and asserts that the memory of the test's process stays bounded and that
// another client is answered meanwhile. The TestMain of a package that uses it calls Main.
package peertest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is what is attacked.
type Server struct {
	// Network and Address are as in net.Dial; or "pipe" and the path of a named pipe, on
	// Windows. Over TCP, the hostile peers are at 127.0.0.2.
	Network, Address string
	// TLS is whether it speaks TLS; its certificate is not verified.
	TLS bool
	// Path is a method, /SERVICE/METHOD, or that of a request of HTTP.
	Path string
	// Ask is a call of another client, over a connection of its own.
	Ask func(context.Context) error `json:"-"`
	// Connections are how many connections each hostile peer opens; 0 means 20.
	Connections int
	// Memory is the growth of the process's memory in bytes that is allowed while all
	// peers are connected; 0 means 256 MiB.
	Memory uint64
}

// timeout bounds the writes of a peer, and connecting bounds its wait for a connection.
const (
	timeout    = time.Second
	connecting = 5 * time.Second
)

// variable of the environment has the Server for the process of the peers.
const variable = "HOLDFAST_TEST_PEERS"

// Main is the process of the hostile peers, and does not return there. It returns at once
// in the process of the tests.
func Main() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var s Server
	if err := errors.Join(json.Unmarshal([]byte(text), &s), s.misbehave(os.Stdin, os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// misbehave runs the peers that the input names, a line each, and answers with a line when
// each has done its worst. It keeps the connections until the input ends.
func (s Server) misbehave(in io.Reader, out io.Writer) error {
	var held sync.Map // keeps the connections from being collected
	for names := bufio.NewScanner(in); names.Scan(); {
		worst, known := peers()[names.Text()]
		if !known {
			return fmt.Errorf("there is no peer %q", names.Text())
		}
		var all sync.WaitGroup
		for range s.Connections {
			all.Go(func() {
				c, err := s.dial(context.Background(), names.Text())
				if err != nil {
					return // the server may refuse
				}
				// A server that stopped reading must not block the peer.
				_ = c.SetWriteDeadline(time.Now().Add(timeout))
				worst(c, s.Path)
				held.Store(c, true)
			})
		}
		all.Wait()
		if _, err := fmt.Fprintln(out, names.Text()); err != nil {
			return err
		}
	}
	return nil
}

func (s Server) dial(ctx context.Context, name string) (net.Conn, error) {
	if s.Network == "pipe" {
		return dialPipe(ctx, s.Address)
	}
	dialer := net.Dialer{Timeout: connecting}
	if s.Network == "tcp" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	}
	if !s.TLS || name == silent { // which does not even begin a handshake
		return dialer.DialContext(ctx, s.Network, s.Address)
	}
	protocol := "h2"
	if strings.Contains(name, "HTTP/1") {
		protocol = "http/1.1"
	}
	secure := tls.Dialer{NetDialer: &dialer, Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}} //nolint:gosec // see TLS
	return secure.DialContext(ctx, s.Network, s.Address)
}

// Attack runs every peer in turn and keeps their connections.
func Attack(t *testing.T, s Server) {
	t.Helper()
	if s.Connections == 0 {
		s.Connections = 20
	}
	if s.Memory == 0 {
		s.Memory = 256 << 20
	}
	next := start(t, s)
	s.ask(t, "at first")
	before := inUse()
	most := before
	for _, name := range slices.Sorted(maps.Keys(peers())) {
		next(name)
		s.ask(t, "when a peer "+name)
		after := inUse()
		if after > before+s.Memory {
			t.Errorf("when a peer %s, %d MiB are in use, and %d MiB at first; want at most %d MiB more",
				name, after>>20, before>>20, s.Memory>>20)
		}
		most = max(most, after)
	}
	t.Logf("%d connections of each of %d peers: %d MiB in use, at first %d MiB", s.Connections, len(peers()), most>>20, before>>20)
}

func (s Server) ask(t *testing.T, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Ask(ctx); err != nil {
		t.Errorf("another client, %s: %v", when, err)
	}
}

// start starts the process of the peers, which ends with the test. The returned function
// runs one of them.
func start(t *testing.T, s Server) (next func(name string)) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]) //nolint:gosec // this test's own binary
	command.Env, command.Stderr = append(os.Environ(), variable+"="+string(text)), os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("the process of the peers: %v", err)
		}
	})
	answers := bufio.NewScanner(out)
	return func(name string) {
		t.Helper()
		if _, err := fmt.Fprintln(in, name); err != nil || !answers.Scan() || answers.Text() != name {
			t.Fatalf("the peer that %s: %v, %q", name, err, answers.Text())
		}
	}
}

// inUse is the memory that the process uses after a collection.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
