package server

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Limits bound the resources of callers; zero means the default.
type Limits struct {
	// Message is the longest request in bytes. The longest legitimate one has two
	// paths of 260 characters.
	Message int
	// Connections and Calls bound the concurrent ones of each pipe. Further callers
	// wait, in the order of arrival; none is rejected. Calls must exceed the number of
	// clients: if all of them call about one dead disk, calls about others must pass.
	Connections, Calls int
	// ConnectionsOfClient bounds those of one process on each pipe, so that one that keeps
	// connections leaves room for others. Those that are too many are closed at once.
	ConnectionsOfClient int
	// Call bounds the time of an RPC, also if its caller has a later deadline.
	Call time.Duration
	// Preface bounds the silence at the beginning of a connection. Clients that check
	// whether the pipe exists open connections and send nothing.
	Preface time.Duration
	// Drain bounds the time in which running calls may end after a request to stop.
	Drain time.Duration
	// RetryFirst and RetryMost are the shortest and the longest time between two
	// attempts to serve a pipe: doubling, with jitter.
	RetryFirst, RetryMost time.Duration
}

// streams bounds the concurrent calls of one connection: its client delays the others
// until one of them ends.
const streams = 64

func (l Limits) withDefaults() Limits {
	return Limits{
		Message:     cmp.Or(l.Message, 64<<10),
		Connections: cmp.Or(l.Connections, 128),
		Calls:       cmp.Or(l.Calls, 256),

		ConnectionsOfClient: cmp.Or(l.ConnectionsOfClient, 112),

		Call:       cmp.Or(l.Call, 5*time.Minute),
		Preface:    cmp.Or(l.Preface, 30*time.Second),
		Drain:      cmp.Or(l.Drain, 10*time.Second),
		RetryFirst: cmp.Or(l.RetryFirst, time.Second),
		RetryMost:  cmp.Or(l.RetryMost, 30*time.Second),
	}
}

// retry returns the time until the next attempt after a number of failures. The jitter,
// up to a quarter less, keeps two proxies from retrying at the same times.
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
