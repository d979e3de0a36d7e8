package tracing

import "time"

// detached is the context of a span that belongs to no call: a trace outlives the calls that
// begin and finish it.
type detached struct{}

func (detached) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}                   { return nil }
func (detached) Err() error                              { return nil }
func (detached) Value(any) any                           { return nil }
