package api

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
	"net/url"
	"path"
	"path/filepath"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrNoHost reports that no host serves the socket.
var ErrNoHost = errors.New("no host is running")

// Client talks to a host. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// Dial makes a Client of the host whose socket this is. Nothing is connected
// before the first call.
func Dial(socket string) *Client {
	var dialer net.Dialer
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		DisableCompression: true,
	}}}
}

// DialRoot is Dial for the host with this root directory.
func DialRoot(root string) *Client { return Dial(filepath.Join(root, SocketName)) }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Transport is the way to the host, for other clients of the Kubernetes API.
func (c *Client) Transport() http.RoundTripper { return c.http.Transport }

// request is one call.
type request struct {
	method, path string
	query        url.Values
	contentType  string
	body         []byte
}

// send returns an answer other than an error. The caller closes its body.
func (c *Client) send(ctx context.Context, what request) (*http.Response, error) {
	if path.Clean(what.path) != what.path { // the server would send us elsewhere
		return nil, fmt.Errorf("a name or namespace in %s is none", what.path)
	}
	address := url.URL{Scheme: "http", Host: "host", Path: what.path, RawQuery: what.query.Encode()}
	asked, err := http.NewRequestWithContext(ctx, what.method, address.String(), bytes.NewReader(what.body))
	if err != nil {
		return nil, err
	}
	if what.contentType != "" {
		asked.Header.Set("Content-Type", what.contentType)
	}
	answer, err := c.http.Do(asked)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if answer.StatusCode < http.StatusMultipleChoices {
		return answer, nil
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	return nil, readError(answer)
}

// maximumError bounds an error's text.
const maximumError = 1 << 20

func readError(answer *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(answer.Body, maximumError))
	if err != nil {
		return fmt.Errorf("the host answered %s, and then: %w", answer.Status, err)
	}
	var status metav1.Status
	if json.Unmarshal(data, &status) != nil || status.Message == "" {
		return fmt.Errorf("the host answered %s: %.500s", answer.Status, bytes.TrimSpace(data))
	}
	return &statusError{status}
}

// explain adds to a failed connection how to start the host.
func (c *Client) explain(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // its text is the address, which says nothing here
	}
	root := filepath.Dir(c.socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w with --root %s: start one with 'holdfast host --root %s'", ErrNoHost, root, root)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the host's socket %s: %w: use sudo, or become a member of the group that 'holdfast host --socket-group' or '--socket-read-group' names", c.socket, fs.ErrPermission)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the host with --root %s ended the connection (%w): see its log", root, err)
	}
	return fmt.Errorf("ask the host with --root %s: %w", root, err)
}

// maximumRaw bounds an answer of Raw.
const maximumRaw = 64 << 20

// Raw reads the answer for a path as it is.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	answer, err := c.send(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	data, err := io.ReadAll(io.LimitReader(answer.Body, maximumRaw))
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	return data, nil
}

// call sends a request and decodes its answer.
func (c *Client) call(ctx context.Context, what request, into any) error {
	answer, err := c.send(ctx, what)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
		return fmt.Errorf("the host's answer for %s: %w", what.path, c.explain(ctx, err))
	}
	return nil
}
