// Package httplimit bounds the answers of EC2 and of the instance metadata service. AWS's
// SDK reads answers without a limit, so that whatever answers in their place could
// exhaust the driver's memory.
package httplimit

import (
	"fmt"
	"io"
	"net/http"
)

// Doer sends requests, as the clients of AWS's SDK do.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Client sends requests. The bodies of its answers end with an error after Most bytes.
type Client struct {
	Doer
	Most int64
}

// Do implements Doer.
func (c Client) Do(request *http.Request) (*http.Response, error) {
	response, err := c.Doer.Do(request)
	if err == nil && response.Body != nil {
		response.Body = &body{ReadCloser: response.Body, left: c.Most, most: c.Most}
	}
	return response, err
}

type body struct {
	io.ReadCloser
	left, most int64
}

// Read fails only if there are more bytes than the limit.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		n, err = int(b.left), fmt.Errorf("the answer has more than %d bytes", b.most)
	}
	b.left -= int64(n)
	return n, err
}
