package grpcserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/holdfast-csi/holdfast/internal/connlimit"
)

// calls counts the calls that arrive or run. As a stats.Handler it notes the peer of each
// connection, which admit has no other way to know.
type calls struct {
	limits Limits

	mu     sync.Mutex
	all    int
	byPeer map[string]int
}

// call is an admitted call.
type call struct{ arrival *time.Timer }

type (
	callKey struct{}
	peerKey struct{}
)

var errLate = errors.New("the request did not arrive in time")

func newCalls(limits Limits) *calls { return &calls{limits: limits, byPeer: map[string]int{}} }

// admit is called for the headers of each call, before anything else of it is read. The
// context that it returns ends with the call.
//
// A refused call gets UNAVAILABLE, which a CO repeats. RESOURCE_EXHAUSTED would mean that the
// storage or the node is full (CSI spec 1.13, CreateVolume, ControllerPublishVolume): a CO
// would select another node.
func (c *calls) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	peer, _ := ctx.Value(peerKey{}).(string)
	if !c.enter(peer) {
		return ctx, status.Error(codes.Unavailable, "too many calls run or arrive here at once; repeat this one later")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	one := &call{arrival: time.AfterFunc(c.limits.Arrival, func() { cancel(errLate) })}
	context.AfterFunc(ctx, func() {
		one.arrival.Stop()
		cancel(nil)
		c.leave(peer)
	})
	return context.WithValue(ctx, callKey{}, one), nil
}

func (c *calls) enter(peer string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.limits.Calls || peer != connlimit.Unknown && c.byPeer[peer] >= c.limits.CallsOfPeer {
		return false
	}
	c.all++
	c.byPeer[peer]++
	return true
}

func (c *calls) leave(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.byPeer[peer]--; c.byPeer[peer] == 0 {
		delete(c.byPeer, peer)
	}
}

// TagConn implements stats.Handler.
func (*calls) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	if from, ok := info.RemoteAddr.(address); ok {
		return context.WithValue(ctx, peerKey{}, from.peer)
	}
	return ctx
}

// HandleConn implements stats.Handler.
func (*calls) HandleConn(context.Context, stats.ConnStats) {}

// TagRPC implements stats.Handler.
func (*calls) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (*calls) HandleRPC(context.Context, stats.RPCStats) {}
