package csidriver

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/csi/message"
)

// Repeats makes a driver show the secrets of each call in its first answers, as drivers do
// that show the command or the request that failed. Its method Before is for the field of
// the same name.
type Repeats struct {
	// Times is how often a call with secrets fails before it succeeds.
	Times int
	// Remark begins each answer: what shows the remark would show the secrets.
	Remark string

	mu     sync.Mutex
	counts map[string]int // calls that got secrets, by name
}

// Before fails the first calls that have secrets.
func (r *Repeats) Before(_ context.Context, rpc string, request any) error {
	values := secretsIn(request)
	if len(values) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	if r.counts[rpc]++; r.counts[rpc] > r.Times {
		return nil
	}
	var said []string
	for _, value := range values {
		said = append(said, Repeated(value)...)
	}
	return Fail(codes.Internal, r.Remark+": "+strings.Join(said, "; "))
}

// Count returns how often a call got secrets.
func (r *Repeats) Count(rpc string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[rpc]
}

// secretsIn are the secrets of a request and the service account tokens in its context.
func secretsIn(request any) (values []string) {
	if confided, ok := request.(interface{ GetSecrets() map[string]string }); ok {
		values = slices.Sorted(maps.Values(confided.GetSecrets()))
	}
	if given, ok := request.(interface{ GetVolumeContext() map[string]string }); ok {
		if tokens := given.GetVolumeContext()[message.TokensKey]; tokens != "" {
			values = append(values, tokens)
		}
		var audiences map[string]struct{ Token string }
		_ = json.Unmarshal([]byte(given.GetVolumeContext()[message.TokensKey]), &audiences) // none
		for _, audience := range audiences {
			values = append(values, audience.Token)
		}
	}
	return values
}

// Repeated is a secret as programs show it: in a command, a Go value, a JSON body, a URL,
// the header of a request, a dump, and wrapped by a tool.
func Repeated(secret string) []string {
	trimmed := strings.TrimSpace(secret)
	body, _ := json.Marshal(map[string]string{"p": trimmed}) // it has a form
	wrapped := trimmed[:len(trimmed)/2] + "\\\n    " + trimmed[len(trimmed)/2:]
	return []string{
		"login -p " + trimmed, fmt.Sprintf("%q", map[string]string{"p": secret}), string(body),
		"https://storage/?p=" + url.QueryEscape(trimmed), "https://user:" + url.PathEscape(trimmed) + "@storage",
		"Secret data " + base64.StdEncoding.EncodeToString([]byte(secret)),
		"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+trimmed)),
		"dump " + hex.EncodeToString([]byte(trimmed)), "command " + wrapped,
	}
}
