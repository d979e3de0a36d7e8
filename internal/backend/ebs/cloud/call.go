package cloud

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// class determines how often an action may be sent.
type class int

const (
	// free: a read, or a creation with a client token. Repeated without a limit.
	free class = iota
	// again: two calls have the effect of one, but the second may fail with "already".
	// Repeated; errors after a lost answer are Uncertain.
	again
	// once: two calls have two effects. Repeated only if the first certainly had no
	// effect.
	once
	// outlivesCaller: as again, and the end of the caller's context does not cancel a
	// request under way at once. EC2 executes it nevertheless, perhaps after the describe
	// of the next caller, so the client waits for its answer.
	outlivesCaller
)

// outliveTime is how long such a request continues without its caller.
const outliveTime = 5 * time.Second

// attemptTimeout bounds one request, so that a hung connection does not block its caller.
const attemptTimeout = 30 * time.Second

// Waits between attempts after EC2 had a fault; they double, with jitter.
const (
	retryFirst   = 100 * time.Millisecond
	retryLongest = 5 * time.Second
)

// operation describes a call, for errors, pace and metrics.
type operation struct {
	action   string
	resource string // as an error names it
	class    class
}

// send is an action of the SDK's client.
type send[I, O any] func(context.Context, *I, ...func(*ec2.Options)) (*O, error)

// call sends an action at its pace and repeats it, as its class allows, until EC2
// answers. The context is the only limit. Errors are *Error.
func call[I, O any](ctx context.Context, c *Client, op operation, do send[I, O], in *I) (*O, error) {
	var last *Error
	var t *ticket
	lost := false
	for attempt := 0; ; attempt++ {
		var err error
		came := time.Now()
		if t, err = c.pace.take(ctx, op.action, t); err != nil {
			return nil, interrupted(ctx, op, last, lost && op.class != free, t.String())
		}
		began := time.Now()
		c.metrics.waited.WithLabelValues(op.action).Observe(began.Sub(came).Seconds())
		out, err := sendOnce(ctx, c, op, do, in)
		failed, kind := classify(op, err)
		c.pace.done(t, kind)
		c.observed(ctx, op.action, began, failed, kind)
		if failed == nil {
			return out, nil
		}
		failed.Message = c.credentials.hide(failed.Message)
		lost = lost || kind == lostAnswer
		if ctx.Err() != nil {
			return nil, interrupted(ctx, op, failed, lost && op.class != free, "the call was under way")
		}
		if !mayRepeat(op.class, kind, attempt) {
			failed.Uncertain = lost && op.class != free
			return nil, failed
		}
		last = failed
		c.metrics.repeated(op.action, kind)
		if kind == throttled && !c.pace.off {
			continue // the pace decides when
		}
		if err := concurrency.Sleep(ctx, delay(kind, attempt)); err != nil {
			return nil, interrupted(ctx, op, last, lost && op.class != free, "it waited to try again")
		}
	}
}

// sendOnce sends one request.
func sendOnce[I, O any](ctx context.Context, c *Client, op operation, do send[I, O], in *I) (*O, error) {
	inFlight := c.metrics.inFlight.WithLabelValues(op.action)
	inFlight.Inc()
	defer inFlight.Dec()
	bounded, cancel := boundedBy(ctx, op.class)
	defer cancel()
	out, err := do(bounded, in)
	if err == nil && out == nil {
		err = errors.New("the answer is empty")
	}
	return out, err
}

// boundedBy is the context of one request.
func boundedBy(ctx context.Context, c class) (context.Context, context.CancelFunc) {
	if c != outlivesCaller {
		return context.WithTimeout(ctx, attemptTimeout)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
	stop := context.AfterFunc(ctx, func() {
		if concurrency.Sleep(bounded, outliveTime) == nil {
			cancel()
		}
	})
	return bounded, func() { stop(); cancel() }
}

// interrupted is the error of a call whose context ended.
func interrupted(ctx context.Context, op operation, last *Error, uncertain bool, while string) *Error {
	e := &Error{
		Action: op.action, resource: op.resource, Uncertain: uncertain,
		Message: "the deadline passed while " + while, ended: ctx.Err(),
	}
	if e.ended == nil {
		e.Message, e.sentinel = errClosed.Error(), backend.ErrUnavailable
	}
	if last != nil && last.ended == nil {
		e.Code, e.RequestID, e.sentinel = last.Code, last.RequestID, last.sentinel
		e.Message += "; EC2's last answer: " + last.Message
	}
	return e
}

// outcome classifies an attempt by its effect on the next one.
type outcome int

const (
	answered   outcome = iota // EC2 executed the call, or refused it for a reason that persists
	throttled                 // too many calls: not executed
	notSent                   // the call did not reach EC2
	lostAnswer                // the call may have been executed
	staleAuth                 // not executed; new credentials or a new clock reading may help
)

// mayRepeat reports whether an attempt with this outcome is followed by another.
func mayRepeat(c class, kind outcome, attempt int) bool {
	switch kind {
	case throttled, notSent:
		return true
	case lostAnswer:
		return c != once
	case staleAuth:
		return attempt == 0
	}
	return false
}

// delay is how long to wait before the next attempt.
func delay(kind outcome, attempt int) time.Duration {
	if kind == staleAuth {
		return 0
	}
	d := min(retryLongest, retryFirst<<min(attempt, 10))
	return d/2 + time.Duration(rand.Int64N(int64(d/2)))
}

// classify converts the SDK's error and returns its outcome.
func classify(op operation, err error) (*Error, outcome) {
	if err == nil {
		return nil, answered
	}
	e := &Error{Action: op.action, resource: op.resource}
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Code, e.Message = api.ErrorCode(), api.ErrorMessage()
		var response *awshttp.ResponseError
		status := 0
		if errors.As(err, &response) {
			e.RequestID, status = response.ServiceRequestID(), response.HTTPStatusCode()
		}
		e.sentinel = sentinelOf(e.Code, e.Message)
		return e, e.classifyCode(status)
	}
	var identity *credentialsError
	if errors.As(err, &identity) {
		e.Message, e.sentinel = identity.Error(), backend.ErrCredentials
		return e, answered
	}
	e.Message = withoutWrapping(err)
	var unsent *smithy.InvalidParamsError
	if errors.As(err, &unsent) {
		return e, answered // the SDK rejected the request: a fault of the driver
	}
	e.sentinel = backend.ErrUnavailable
	if neverSent(err) {
		return e, notSent
	}
	return e, lostAnswer
}

// classifyCode returns the outcome by EC2's code and the HTTP status.
func (e *Error) classifyCode(status int) outcome {
	switch e.Code {
	case "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
		"RequestThrottledException", "TooManyRequestsException", "EC2ThrottledException", "BandwidthLimitExceeded",
		"SlowDown", "PriorRequestNotComplete":
		e.sentinel = backend.ErrUnavailable
		return throttled
	case "RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture", "ExpiredToken", "ExpiredTokenException":
		return staleAuth
	case "InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable",
		"RequestTimeout", "RequestTimeoutException":
		return lostAnswer
	}
	if _, known := rowOf(e.Code); !known && status >= 500 {
		e.sentinel = backend.ErrUnavailable
		return lostAnswer
	}
	return answered
}

// neverSent reports whether the request certainly did not reach EC2.
func neverSent(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns), errors.Is(err, syscall.ECONNREFUSED):
		return true
	case errors.As(err, &op):
		return op.Op == "dial"
	}
	return false
}

// withoutWrapping returns the text of an error without the SDK's wrapping.
func withoutWrapping(err error) string {
	var send *smithyhttp.RequestSendError
	var op *smithy.OperationError
	switch {
	case errors.As(err, &send) && send.Err != nil:
		return "EC2 cannot be reached: " + send.Err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the connection closed during the answer: " + err.Error()
	case errors.As(err, &op) && op.Err != nil:
		return strings.TrimSpace(op.Err.Error())
	}
	return err.Error()
}
