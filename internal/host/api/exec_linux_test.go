package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

func TestExec_carriesEverythingThatACommandHas(t *testing.T) {
	f := serve(t)
	long := strings.Repeat("x", 3*maximumFrame+7)
	f.host.exec = func(_ context.Context, request ExecRequest, streams ExecStreams) (int, error) {
		data, err := io.ReadAll(streams.Stdin)
		size := <-streams.Sizes
		resized := <-streams.Sizes
		signal := <-streams.Signals
		_, _ = fmt.Fprintf(streams.Stderr, "%s %v %v %v %v", request.Command, request.Terminal, size, resized, int(signal))
		_, _ = streams.Stdout.Write(data)
		return 7, err
	}
	sizes, signals := make(chan Size, 1), make(chan syscall.Signal, 1)
	sizes <- Size{Columns: 3, Rows: 4}
	signals <- syscall.SIGINT
	var out, errs bytes.Buffer
	code, err := f.Exec(t.Context(), ExecRequest{Namespace: "default", Pod: "web", Command: []string{"a", "b c"}, Stdin: true, Terminal: true, Size: Size{Columns: 1, Rows: 2}},
		ExecStreams{Stdin: strings.NewReader(long), Stdout: &out, Stderr: &errs, Sizes: sizes, Signals: signals})
	if err != nil || code != 7 || out.String() != long || errs.String() != "[a b c] true {1 2} {3 4} 2" {
		t.Errorf("code %d, %v, %d bytes, %q", code, err, out.Len(), &errs)
	}
}

func TestExec_givesTheErrorsOfTheHost(t *testing.T) {
	f := serve(t)
	f.host.exec = func(context.Context, ExecRequest, ExecStreams) (int, error) {
		return 0, fmt.Errorf("pod: %w: it is gone", ErrNotFound)
	}
	what := ExecRequest{Namespace: "default", Pod: "web", Command: []string{"a"}}
	if _, err := f.Exec(t.Context(), what, ExecStreams{}); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "it is gone") {
		t.Errorf("got %v", err)
	}
	what.Command = nil
	if _, err := f.Exec(t.Context(), what, ExecStreams{}); err == nil || !strings.Contains(err.Error(), "command: is missing") {
		t.Errorf("without a command: %v", err)
	}
	what.Command, what.Pod = []string{"a"}, "../x"
	if _, err := f.Exec(t.Context(), what, ExecStreams{}); err == nil || !strings.Contains(err.Error(), "is not a pod") {
		t.Errorf("a path as the pod: %v", err)
	}
	if code, body := f.ask(t, "POST", ownPrefix+"exec", `{"command":["a"]}`); code != http.StatusBadRequest || !strings.Contains(body, execProtocol) {
		t.Errorf("without an upgrade: %d, %s", code, body)
	}
}

// The command of a client that is gone ends.
func TestExec_endsWithTheClient(t *testing.T) {
	f := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	f.host.exec = func(host context.Context, _ ExecRequest, _ ExecStreams) (int, error) {
		cancel()
		<-host.Done()
		close(gone)
		return 0, host.Err()
	}
	_, err := f.Exec(ctx, ExecRequest{Namespace: "default", Pod: "web", Command: []string{"a"}}, ExecStreams{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the client has %v", err)
	}
	<-gone
}
