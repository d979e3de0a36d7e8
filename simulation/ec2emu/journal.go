package ec2emu

import (
	"maps"
	"sync"
	"time"
)

// Call is one entry of the journal.
type Call struct {
	Number    uint64    `json:"number"` // from 1, never reused
	Start     time.Time `json:"start"`
	Seconds   float64   `json:"seconds"`
	Action    string    `json:"action"`
	Code      string    `json:"code"`   // OK, EC2's error code, or dropped
	Status    int       `json:"status"` // 0 without an answer
	RequestID string    `json:"requestId"`
	// Invocation is the same for all attempts of one call of an SDK. Attempt counts from
	// 1, and is 0 if the client does not send it.
	Invocation string `json:"invocation,omitempty"`
	Attempt    int    `json:"attempt,omitempty"`
	// Caller is the access key of the signature, Resources are the IDs in the parameters.
	Caller    string   `json:"caller,omitempty"`
	Resources []string `json:"resources,omitempty"`
	DryRun    bool     `json:"dryRun,omitempty"`
	// Executed reports whether the call reached the world, Fault which fault hit it.
	Executed bool   `json:"executed"`
	Fault    string `json:"fault,omitempty"`
	// Bucket is the bucket from which the call took a token.
	Bucket string `json:"bucket,omitempty"`
}

// CodeOK and CodeDropped are the codes of calls that ended without an error
// code of EC2.
const (
	CodeOK      = "OK"
	CodeDropped = "dropped"
)

// ActionStatistics are the counters of one action.
type ActionStatistics struct {
	Calls     uint64            `json:"calls"`
	Codes     map[string]uint64 `json:"codes"`
	Throttled uint64            `json:"throttled"`
	DryRuns   uint64            `json:"dryRuns"`
	// Retries are the calls that are repeated attempts by their header.
	Retries uint64  `json:"retries"`
	Seconds float64 `json:"seconds"` // in all
}

// Statistics are the counters since the start or the last reset.
type Statistics struct {
	Since   time.Time                   `json:"since"`
	Actions map[string]ActionStatistics `json:"actions"`
	// Callers are calls by access key.
	Callers map[string]uint64 `json:"callers"`
}

// Calls is the number of calls of an action, or of all for "".
func (s Statistics) Calls(action string) uint64 {
	return s.sum(action, func(a ActionStatistics) uint64 { return a.Calls })
}

// Throttled is the number of calls of an action, or of all for "", that were
// throttled.
func (s Statistics) Throttled(action string) uint64 {
	return s.sum(action, func(a ActionStatistics) uint64 { return a.Throttled })
}

func (s Statistics) sum(action string, of func(ActionStatistics) uint64) uint64 {
	if action != "" {
		return of(s.Actions[action])
	}
	total := uint64(0)
	for _, a := range s.Actions {
		total += of(a)
	}
	return total
}

// mostCallers bounds how many access keys the statistics count.
const mostCallers = 1000

// journal is a ring of the last calls and the counters of all.
type journal struct {
	mu      sync.Mutex
	limit   int
	ring    []Call
	oldest  int // index in a full ring
	number  uint64
	since   time.Time
	actions map[string]*ActionStatistics
	callers map[string]uint64
}

func newJournal(limit int, now time.Time) *journal {
	j := &journal{limit: limit}
	j.reset(now)
	return j
}

func (j *journal) add(c Call, throttled bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.number++
	c.Number = j.number
	if len(j.ring) < j.limit {
		j.ring = append(j.ring, c)
	} else if j.limit > 0 {
		j.ring[j.oldest] = c
		j.oldest = (j.oldest + 1) % j.limit
	}
	a := j.actions[c.Action]
	if a == nil {
		a = &ActionStatistics{Codes: map[string]uint64{}}
		j.actions[c.Action] = a
	}
	a.Calls++
	a.Codes[c.Code]++
	a.Seconds += c.Seconds
	if throttled {
		a.Throttled++
	}
	if c.DryRun {
		a.DryRuns++
	}
	if c.Attempt > 1 {
		a.Retries++
	}
	if _, known := j.callers[c.Caller]; !known && len(j.callers) >= mostCallers {
		c.Caller = "others"
	}
	j.callers[c.Caller]++
}

// reset empties the counters and the ring; the numbering of calls continues.
func (j *journal) reset(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.since, j.ring, j.oldest = now, nil, 0
	j.actions, j.callers = map[string]*ActionStatistics{}, map[string]uint64{}
}

// calls are the calls that are still in the ring whose number is above after,
// oldest first.
func (j *journal) calls(after uint64) []Call {
	j.mu.Lock()
	defer j.mu.Unlock()
	var calls []Call
	for i := range j.ring {
		if c := j.ring[(j.oldest+i)%len(j.ring)]; c.Number > after {
			calls = append(calls, c)
		}
	}
	return calls
}

func (j *journal) statistics() Statistics {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := Statistics{Since: j.since, Actions: map[string]ActionStatistics{}, Callers: maps.Clone(j.callers)}
	for action, a := range j.actions {
		copied := *a
		copied.Codes = maps.Clone(a.Codes)
		s.Actions[action] = copied
	}
	return s
}
