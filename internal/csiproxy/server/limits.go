package server

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Limits bound what callers can take; zero means the default.
type Limits struct {
	// Message is the longest request in bytes. The longest legitimate one has two
	// paths of 260 characters.
	Message int
	// Connections and Calls are per pipe, at once. A later caller waits, in
	// the order of coming; no caller is refused. Calls are more than any number of
	// clients that may all want one disk which does not answer: others' must pass.
	Connections, Calls int
	// Call is how long an RPC may take, whatever its caller would wait for.
	Call time.Duration
	// Preface is how long a connection may be silent at its beginning. Clients
	// that check whether the pipe exists leave such connections behind.
	Preface time.Duration
	// Drain is how long calls may continue after the server was asked to stop.
	Drain time.Duration
	// RetryFirst and RetryMost are the shortest and the longest time between two
	// attempts to serve a pipe: doubling, with jitter.
	RetryFirst, RetryMost time.Duration
}

// streams is how many calls of one connection are taken in: its client keeps
// the rest until one of them ends.
const streams = 64

func (l Limits) withDefaults() Limits {
	return Limits{
		Message:     cmp.Or(l.Message, 64<<10),
		Connections: cmp.Or(l.Connections, 128),
		Calls:       cmp.Or(l.Calls, 256),
		Call:        cmp.Or(l.Call, 5*time.Minute),
		Preface:     cmp.Or(l.Preface, 30*time.Second),
		Drain:       cmp.Or(l.Drain, 10*time.Second),
		RetryFirst:  cmp.Or(l.RetryFirst, time.Second),
		RetryMost:   cmp.Or(l.RetryMost, 30*time.Second),
	}
}

// retry is the time until the next look after so many in vain. The jitter, up
// to a quarter less, keeps two proxies from looking in step.
func (l Limits) retry(failures int) time.Duration {
	wait := l.RetryFirst
	for range failures - 1 {
		if wait *= 2; wait >= l.RetryMost {
			wait = l.RetryMost
			break
		}
	}
	return wait - rand.N(wait/4+1)
}
