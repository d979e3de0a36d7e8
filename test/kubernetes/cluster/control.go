package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// The supervisor and each node answer HTTP on a socket in the state directory,
// which only root can enter.

// viaDirectory runs a function with a name for the socket that fits into a
// socket address (108 bytes), however long the path is.
func viaDirectory(path string, use func(short string) error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// listenControl listens on the socket. It replaces the socket of a dead process.
func listenControl(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var listener net.Listener
	err := viaDirectory(path, func(short string) error {
		var err error
		listener, err = new(net.ListenConfig).Listen(context.Background(), "unix", short)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: listen on %s: %w", path, err)
	}
	return listener, nil
}

// serveControl serves requests until the process ends.
func serveControl(listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler}
	_ = server.Serve(listener)
}

// dialSocket connects to a socket.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	var connection net.Conn
	err := viaDirectory(path, func(short string) error {
		var err error
		connection, err = new(net.Dialer).DialContext(ctx, "unix", short)
		return err
	})
	return connection, err
}

// callControl makes a request over a socket, with body as JSON, and decodes the answer into
// result; either may be nil.
func callControl(ctx context.Context, socket, method, path string, body, result any) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialSocket(ctx, socket)
		},
	}}
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://control"+path, &content)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("cluster: %s %s: %w", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("cluster: %s %s: %w", method, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("cluster: %s %s: %s", method, path, bytes.TrimSpace(answer))
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer, result)
}

// answer makes a handler of a function: its error is the answer, or its result.
func answer(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := do(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result) // the client may be gone
	}
}
