package ec2emu

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

const maximumBody = 1 << 20 // bytes of a request

// ServeHTTP answers one call of the EC2 Query protocol, POST or GET, on any path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{server: s, knobs: s.Knobs(), started: s.now(), id: requestID(), w: w, r: r}
	c.serve() //nolint:contextcheck // the call has the request, and its context with it
}

// call is one request in flight.
type call struct {
	server  *Server
	knobs   Knobs
	started time.Time
	id      string
	w       http.ResponseWriter
	r       *http.Request
	form    url.Values
	action  string
	entry   Call
	limited bool // refused for coming too fast
}

// serve answers and writes the journal. A connection that a fault drops ends
// in http.ErrAbortHandler, as net/http requires.
func (c *call) serve() {
	c.entry = Call{Start: c.started, RequestID: c.id}
	answer, err := c.answer()
	left := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	c.entry.Action = c.action
	if left || errors.Is(err, errDropped) {
		c.entry.Code = CodeDropped
		c.record()
		panic(http.ErrAbortHandler)
	}
	c.write(answer, err)
}

// errDropped ends a call without an answer.
var errDropped = errors.New("the connection was dropped")

// answer is the action's answer, or the error that is answered: a *failure,
// errDropped, or that of the client's context.
func (c *call) answer() (any, error) {
	if err := c.read(); err != nil {
		return nil, err
	}
	wanted, ok := c.server.actions[c.action]
	if err := c.check(ok); err != nil {
		return nil, err
	}
	delay := c.server.draw(c.knobs.latency(c.action))
	if err := concurrency.Sleep(c.r.Context(), delay/2); err != nil {
		return nil, err
	}
	fault := c.server.faults.hit(c.action, c.server.now(), c.names)
	if fault != nil {
		c.entry.Fault = fault.ID
	}
	answer, err := c.execute(wanted, fault)
	if wait := concurrency.Sleep(c.r.Context(), delay-delay/2); wait != nil {
		return nil, wait
	}
	if err == nil || c.entry.Executed {
		return c.corrupt(answer, err, fault)
	}
	return answer, err
}

// read reads the parameters.
func (c *call) read() error {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodPost {
		return &failure{Code: "InvalidRequest", Message: "The method must be GET or POST",
			Status: http.StatusMethodNotAllowed}
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maximumBody)
	if err := c.r.ParseForm(); err != nil {
		return badRequest("MalformedQueryString", "The request cannot be read: "+err.Error())
	}
	c.form, c.action = c.r.Form, c.r.Form.Get("Action")
	c.entry.Invocation = c.r.Header.Get("Amz-Sdk-Invocation-Id")
	c.entry.Attempt = attempt(c.r.Header.Get("Amz-Sdk-Request"))
	c.entry.DryRun = strings.EqualFold(c.form.Get("DryRun"), "true")
	c.entry.Resources = resources(c.form)
	return nil
}

// check rejects calls that are malformed, unsigned or unknown, before it reads
// their parameters.
func (c *call) check(known bool) error {
	signed, malformed := signatureOf(c.r)
	if signed != nil {
		c.entry.Caller = signed.accessKey
	}
	if err := c.knobs.Auth.admit(signed, malformed, c.server.now()); err != nil {
		return err
	}
	version := c.form.Get("Version")
	switch {
	case c.action == "":
		return badRequest("MissingAction", "The request must contain the parameter Action")
	case !known:
		action := c.action
		c.action = "unknown" // what a client invents must not become a name of a metric
		return badRequest("InvalidAction", "The action "+action+" is not valid for this web service.")
	case version == "":
		return badRequest("MissingParameter", "The request must contain the parameter Version")
	case version != apiVersion:
		return badRequest("NoSuchVersion", "The requested version ("+version+") of service AmazonEC2 does not exist")
	}
	return nil
}

// execute executes the call, unless a fault or an empty bucket prevents it.
func (c *call) execute(wanted action, fault *Fault) (any, error) {
	if fault != nil {
		switch fault.Kind {
		case FaultDrop:
			return nil, errDropped
		case FaultThrottle:
			return nil, c.throttled()
		case FaultError:
			code, message, status := fault.failure()
			return nil, &failure{Code: code, Message: message, Status: status}
		}
	}
	if name, limit, ok := c.knobs.Throttling.bucket(c.action, c.isUnfiltered()); ok {
		c.entry.Bucket = name
		if !c.server.buckets.take(name, limit, c.server.now()) {
			return nil, c.throttled()
		}
	}
	request := wanted.request()
	if err := decodeQuery(c.form, request); err != nil {
		return nil, err
	}
	if err := c.knobs.Auth.allow(c.action); err != nil {
		return nil, err
	}
	c.entry.Executed = true
	return wanted.call(c.server.world, request)
}

// corrupt applies a fault to the answer of a call that was executed.
func (c *call) corrupt(answer any, err error, fault *Fault) (any, error) {
	if fault == nil {
		return answer, err
	}
	switch fault.Kind {
	case FaultDropReply:
		return nil, errDropped
	case FaultGarble:
		return garbled{status: fault.Status}, nil
	case FaultSlowBody:
		return slow{answer: answer, err: err, delay: time.Duration(fault.Delay)}, nil
	}
	return answer, err
}

func (c *call) throttled() error {
	c.limited = true
	t := c.knobs.Throttling
	f := &failure{Code: t.Code, Message: "Request limit exceeded.", Status: t.Status}
	if f.Code == "" {
		f.Code = "RequestLimitExceeded"
	}
	if f.Status == 0 {
		f.Status = http.StatusServiceUnavailable
	}
	return f
}

// isUnfiltered reports whether a call describes everything without a filter or a page
// size. EC2's documentation does not define whether IDs count as a filter.
func (c *call) isUnfiltered() bool {
	for name := range c.form {
		if name == "MaxResults" || strings.HasPrefix(name, "Filter.") ||
			c.knobs.Throttling.IDsAreFilters && strings.Contains(name, "Id.") {
			return false
		}
	}
	return true
}

// names reports whether some parameter has the value.
func (c *call) names(value string) bool {
	for _, values := range c.form {
		if slices.Contains(values, value) {
			return true
		}
	}
	return false
}

// resources are the IDs among the parameters, sorted.
func resources(form url.Values) []string {
	var ids []string
	for _, values := range form {
		for _, value := range values {
			for _, prefix := range []string{"vol-", "snap-", "i-"} {
				if strings.HasPrefix(value, prefix) {
					ids = append(ids, value)
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// attempt is the number in a header such as "attempt=2; max=3", or 0.
func attempt(header string) int {
	for field := range strings.SplitSeq(header, ";") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(field), "attempt="); ok {
			n, _ := strconv.Atoi(text)
			return n
		}
	}
	return 0
}
