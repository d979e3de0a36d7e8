package ec2emu

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// slow is an answer or an error whose second half takes delay.
type slow struct {
	answer any
	err    error
	delay  time.Duration
}

// garbled is an answer that is not XML.
type garbled struct{ status int }

// write answers the call and writes the journal's entry.
func (c *call) write(answer any, err error) {
	delay := time.Duration(0)
	if s, ok := answer.(slow); ok {
		answer, err, delay = s.answer, s.err, s.delay
	}
	body, status := c.body(answer, err)
	header := c.w.Header()
	header.Set("Content-Type", "text/xml;charset=UTF-8")
	header.Set("X-Amzn-Requestid", c.id)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	c.entry.Status = status
	c.record()
	c.w.WriteHeader(status)
	half := len(body)
	if delay > 0 {
		half /= 2
	}
	_, _ = c.w.Write(body[:half]) // a client that is gone needs no answer
	if delay == 0 {
		return
	}
	if flusher, ok := c.w.(http.Flusher); ok {
		flusher.Flush()
	}
	if concurrency.Sleep(c.r.Context(), delay) != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = c.w.Write(body[half:])
}

// body returns the text and the status of the answer, and adds its code to the journal.
func (c *call) body(answer any, err error) ([]byte, int) {
	if broken, ok := answer.(garbled); ok {
		c.entry.Code = CodeOK
		return []byte("this is not XML"), max(broken.status, http.StatusOK)
	}
	c.entry.Code = CodeOK
	if err == nil {
		return encodeAnswer(c.action, c.id, answer), http.StatusOK
	}
	refused := refusal(err)
	c.entry.Code = refused.Code
	return encodeError(c.id, refused.Code, refused.Message), refused.Status
}

// refusal is the answer for an error.
func refusal(err error) *failure {
	if own := (*failure)(nil); errors.As(err, &own) {
		return own
	}
	if refused := (*world.Error)(nil); errors.As(err, &refused) {
		status := refused.Status
		if status == 0 {
			status = http.StatusBadRequest
		}
		return &failure{Code: refused.Code, Message: refused.Message, Status: status}
	}
	return &failure{Code: "InternalError", Message: err.Error(), Status: http.StatusInternalServerError}
}

// record ends the journal's entry.
func (c *call) record() {
	c.entry.Seconds = c.server.now().Sub(c.started).Seconds()
	c.server.journal.add(c.entry, c.limited)
	if c.server.logger.Enabled(c.r.Context(), debug) {
		c.server.logger.Debug("call", "action", c.action, "code", c.entry.Code, "seconds", c.entry.Seconds,
			"resources", c.entry.Resources, "fault", c.entry.Fault, "request", c.id)
	}
}

// requestID is an identifier in the form of EC2's.
func requestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
