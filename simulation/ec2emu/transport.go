package ec2emu

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
)

// RoundTripper calls the server's handler in the caller's goroutine, without a
// socket: for tests that count goroutines or run in virtual time. It honours
// the request's context. A dropped connection is a reset one.
func (s *Server) RoundTripper() http.RoundTripper { return InProcess(s) }

// InProcess is RoundTripper for any handler, such as that of Metadata.
func InProcess(handler http.Handler) http.RoundTripper { return roundTripper{handler} }

type roundTripper struct{ handler http.Handler }

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	served := r.Clone(r.Context())
	served.RequestURI = r.URL.RequestURI()
	served.RemoteAddr = "127.0.0.1:0"
	if served.Host == "" {
		served.Host = r.URL.Host
	}
	if served.Body == nil {
		served.Body = http.NoBody
	}
	answer := &recorder{header: http.Header{}}
	aborted := answer.serve(t.handler, served)
	if err := r.Context().Err(); err != nil {
		return nil, err // the client left before the answer came
	}
	if aborted {
		return nil, &net.OpError{Op: "read", Net: "ec2emu", Err: syscall.ECONNRESET}
	}
	return answer.response(r), nil
}

// recorder records the answer of a handler.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// serve runs the handler and reports whether it aborted the connection (see
// http.ErrAbortHandler).
func (a *recorder) serve(handler http.Handler, r *http.Request) (aborted bool) {
	defer func() {
		if recovered := recover(); recovered != nil {
			if err, ok := recovered.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				aborted = true
				return
			}
			panic(recovered)
		}
	}()
	handler.ServeHTTP(a, r)
	return false
}

func (a *recorder) Header() http.Header { return a.header }

func (a *recorder) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *recorder) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *recorder) response(r *http.Request) *http.Response {
	a.WriteHeader(http.StatusOK)
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: r,
	}
}
