package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// errNoAnswer is the class of an error with a code that the driver did not send.
var errNoAnswer = errors.New("no answer of the driver")

// arrival notes whether the trailers of an answer arrived, which have its code.
type arrival struct{ trailers atomic.Bool }

type arrivalKey struct{}

// HandleRPC implements stats.Handler.
func (w *connectionWatch) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if one, noting := ctx.Value(arrivalKey{}).(*arrival); noting {
		if _, ok := event.(*stats.InTrailer); ok {
			one.trailers.Store(true)
		}
	}
}

// noteArrival returns a context for one call. Without a connection of the Client's own
// everything counts as the driver's.
func (c *Client) noteArrival(ctx context.Context) (context.Context, *arrival) {
	one := &arrival{}
	one.trailers.Store(c.connection == nil)
	return context.WithValue(ctx, arrivalKey{}, one), one
}

// checked returns an error whose code is not the driver's as one of code Unknown that wraps
// errNoAnswer. The gRPC library answers in the driver's place, at either end, if a message is
// too long or cannot be encoded or decoded, and if a stream is reset or ends early; among its
// codes are INTERNAL and RESOURCE_EXHAUSTED (gRPC, "Status codes and their use in gRPC"). The
// work may be done then. CANCELLED, DEADLINE_EXCEEDED and UNAVAILABLE say so themselves.
func (a *arrival) checked(err error) error {
	answer, ok := status.FromError(err)
	switch {
	case err == nil, !ok, a.trailers.Load() && !strings.HasPrefix(answer.Message(), "grpc: "):
		return err
	case answer.Code() == codes.Canceled, answer.Code() == codes.DeadlineExceeded, answer.Code() == codes.Unavailable:
		return err
	}
	return noAnswerError{status.New(codes.Unknown, fmt.Sprintf("%v, but of gRPC: %v: %s", errNoAnswer, answer.Code(), answer.Message()))}
}

// noAnswerError is an error with a gRPC status that wraps errNoAnswer.
type noAnswerError struct{ said *status.Status }

func (e noAnswerError) Error() string              { return e.said.String() }
func (e noAnswerError) Unwrap() error              { return errNoAnswer }
func (e noAnswerError) GRPCStatus() *status.Status { return e.said }
