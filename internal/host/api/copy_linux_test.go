package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestCopy_carriesTheStreamBothWays(t *testing.T) {
	f := serve(t)
	long := strings.Repeat("x", 3*maximumFrame+7)
	f.host.copy = func(_ context.Context, request CopyRequest, streams ExecStreams) error {
		if request.Upload {
			data, err := io.ReadAll(streams.Stdin)
			if string(data) != long {
				err = fmt.Errorf("%d bytes came", len(data))
			}
			return err
		}
		if streams.Stdin != nil {
			return errors.New("there is an input")
		}
		_, _ = fmt.Fprintf(streams.Stderr, "%s %s %s %v", request.Container, request.Path, request.Name, request.NoPreserve)
		_, err := io.WriteString(streams.Stdout, long)
		return err
	}
	what := CopyRequest{Namespace: "default", Pod: "web", Container: "main", Path: "/srv/a b", Name: "a b", NoPreserve: true}
	var out, errs bytes.Buffer
	err := f.Copy(t.Context(), what, ExecStreams{Stdout: &out, Stderr: &errs})
	if err != nil || out.String() != long || errs.String() != "main /srv/a b a b true" {
		t.Errorf("got %v, %d bytes, %q", err, out.Len(), &errs)
	}
	what.Upload = true
	if err := f.Copy(t.Context(), what, ExecStreams{Stdin: strings.NewReader(long)}); err != nil {
		t.Error(err)
	}
}

func TestCopy_givesTheErrorsOfTheHost(t *testing.T) {
	f := serve(t)
	f.host.copy = func(context.Context, CopyRequest, ExecStreams) error {
		return fmt.Errorf("pod: %w: it is gone", ErrNotFound)
	}
	good := CopyRequest{Namespace: "default", Pod: "web", Path: "/srv", Name: "srv"}
	if err := f.Copy(t.Context(), good, ExecStreams{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	for want, change := range map[string]func(*CopyRequest){
		`path: "" is not the path`:            func(r *CopyRequest) { r.Path = "" },
		`path: "/a\x00b" is not the path`:     func(r *CopyRequest) { r.Path = "/a\x00b" },
		`name: "" is not the name`:            func(r *CopyRequest) { r.Name = "" },
		`name: ".." is not the name`:          func(r *CopyRequest) { r.Name = ".." },
		`name: "../../etc/x" is not the name`: func(r *CopyRequest) { r.Name = "../../etc/x" },
		`"../x" is not a pod`:                 func(r *CopyRequest) { r.Pod = "../x" },
	} {
		bad := good
		change(&bad)
		if err := f.Copy(t.Context(), bad, ExecStreams{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if code, body := f.ask(t, "POST", ownPrefix+"copy", `{"path":"/","name":"."}`); code != http.StatusBadRequest || !strings.Contains(body, execProtocol) {
		t.Errorf("without an upgrade: %d, %s", code, body)
	}
}

// The copy of a client that is gone ends.
func TestCopy_endsWithTheClient(t *testing.T) {
	f := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	f.host.copy = func(host context.Context, _ CopyRequest, _ ExecStreams) error {
		cancel()
		<-host.Done()
		close(gone)
		return host.Err()
	}
	err := f.Copy(ctx, CopyRequest{Namespace: "default", Pod: "web", Path: "/srv", Name: "srv"}, ExecStreams{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the client has %v", err)
	}
	<-gone
}
