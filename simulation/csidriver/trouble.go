package csidriver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Trouble makes a driver fail at random, as much as CSI allows. It fails calls
// before they have an effect, and loses answers of calls that had one. While
// the effect of a creation is open, a repetition may fail with any code that
// says nothing about the earlier call, since drivers are throttled, lack
// permissions or find no room before they look for what exists. A creation of
// which no effect is open may fail with such a code too; it has none then.
//
// Its methods Before and After are for the fields of the same names.
type Trouble struct {
	mu      sync.Mutex
	random  *rand.Rand
	calm    bool
	open    map[string]proto.Message // creations whose effect is open, by call and name
	changed []string
}

// NewTrouble makes the trouble of a seed.
func NewTrouble(seed uint64) *Trouble {
	return &Trouble{random: rand.New(rand.NewPCG(seed, 0)), open: map[string]proto.Message{}}
}

// Calm ends the trouble: from now on every call succeeds that can.
func (t *Trouble) Calm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calm = true
}

// OneIn reports true once in n times, and never after Calm.
func (t *Trouble) OneIn(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.oneIn(n)
}

func (t *Trouble) oneIn(n int) bool { return !t.calm && t.random.IntN(n) == 0 }

// Changed describes the repetitions of creations that differed from the request
// whose effect was open.
func (t *Trouble) Changed() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Before fails calls before they have an effect.
func (t *Trouble) Before(_ context.Context, rpc string, request any) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case strings.HasPrefix(rpc, "Delete"):
		if t.oneIn(4) {
			return Fail(t.any(codes.Unavailable, codes.Internal, codes.DeadlineExceeded), "injected failure")
		}
		return nil
	case !strings.HasPrefix(rpc, "Create"):
		return nil
	}
	key, plain := creation(rpc, request)
	earlier := t.open[key]
	if earlier != nil && !proto.Equal(earlier, plain) {
		t.changed = append(t.changed, fmt.Sprintf("%v, then %v", earlier, plain))
	}
	switch {
	case t.oneIn(5):
		t.open[key] = plain
		return Fail(t.any(openCodes()...), "injected delay")
	case t.oneIn(3):
		return Fail(t.any(mutedCodes()...), "injected failure")
	}
	t.open[key] = plain
	return nil
}

// After loses answers of calls that had their effect.
func (t *Trouble) After(_ context.Context, rpc string, request any) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	create := strings.HasPrefix(rpc, "Create")
	switch {
	case !create && !strings.HasPrefix(rpc, "Delete"):
		return nil
	case t.oneIn(3):
		return Fail(t.any(openCodes()...), "the answer was lost")
	case create:
		key, _ := creation(rpc, request)
		delete(t.open, key)
	}
	return nil
}

func (t *Trouble) any(from ...codes.Code) codes.Code { return from[t.random.IntN(len(from))] }

// openCodes leave open whether the call has an effect.
func openCodes() []codes.Code {
	return []codes.Code{codes.DeadlineExceeded, codes.Unavailable, codes.Canceled, codes.Aborted}
}

// mutedCodes say that the call itself had no effect, and nothing about an earlier
// one.
func mutedCodes() []codes.Code {
	return []codes.Code{
		codes.Internal, codes.Unknown, codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.DataLoss, codes.AlreadyExists, codes.NotFound,
	}
}

// creation is the key of a creation and its request without secrets.
func creation(rpc string, request any) (key string, plain proto.Message) {
	named, _ := request.(interface {
		proto.Message
		GetName() string
	})
	plain = proto.Clone(named)
	fields := plain.ProtoReflect()
	if secrets := fields.Descriptor().Fields().ByName("secrets"); secrets != nil {
		fields.Clear(secrets)
	}
	return rpc + " " + named.GetName(), plain
}
