package client

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lastCode is the gRPC code of the last call of a context.
type lastCode struct {
	mu   sync.Mutex
	name string
}

type lastCodeKey struct{}

// NoteCode returns a context for calls, and a function that returns the name of the gRPC
// code of the last of them; "" without one. A failure is known by it also after the caller
// has decided to wait. Calls that only read the driver's capabilities do not count.
func NoteCode(ctx context.Context) (noting context.Context, code func() string) {
	last := &lastCode{}
	return context.WithValue(ctx, lastCodeKey{}, last), func() string {
		last.mu.Lock()
		defer last.mu.Unlock()
		return last.name
	}
}

// noteCode notes the code of a call for NoteCode.
func noteCode(ctx context.Context, call string, err error) {
	last, ok := ctx.Value(lastCodeKey{}).(*lastCode)
	if !ok || serviceOf(call) == "Identity" || strings.HasSuffix(call, "Capabilities") {
		return
	}
	last.mu.Lock()
	defer last.mu.Unlock()
	last.name = status.Code(err).String()
}

// Succeeded reports whether a code that NoteCode returned is that of success.
func Succeeded(code string) bool { return code == codes.OK.String() }
