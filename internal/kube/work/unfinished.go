package work

import "time"

// begun is a key on which work has begun and is not done.
type begun struct {
	since   time.Time // when work first began
	running bool
	err     error  // why the last work failed
	reason  string // of the error, or what the key waits for
}

// Unfinished is a key that waits for a worker, or whose work is not done.
type Unfinished struct {
	Key string
	// Since is when work first began; before that, since when the key waits for a worker.
	Since   time.Time
	Running bool // a worker is on it
	Failed  bool // the last work failed
	// Reason is that of the last work (Options.Attempt), "" before it and if unknown.
	Reason string
}

// Unfinished returns the keys that wait for a worker, are in progress, are retried after a
// failure or wait for a condition. Keys that are done are not among them.
func (q *Queue) Unfinished() []Unfinished {
	waiting := q.fair.all()
	q.mu.Lock()
	defer q.mu.Unlock()
	found := make([]Unfinished, 0, len(waiting)+len(q.begun))
	for _, one := range waiting {
		if _, ok := q.begun[one.key]; !ok {
			found = append(found, Unfinished{Key: one.key, Since: one.since})
		}
	}
	for key, b := range q.begun {
		found = append(found, Unfinished{Key: key, Since: b.since, Running: b.running, Failed: b.err != nil, Reason: b.reason})
	}
	return found
}

// begin records that the work on a key begins.
func (q *Queue) begin(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b, again := q.begun[key]
	if !again {
		b.since = time.Now()
	}
	b.running = true
	q.begun[key] = b
}

// end records how the work on a key ended. A key that waits for a condition keeps the
// reason of the attempt before, unless there is another one.
func (q *Queue) end(key string, after time.Duration, err error, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil && after <= 0 {
		delete(q.begun, key)
		return
	}
	b := q.begun[key]
	b.running, b.err = false, err
	if reason != "" || err != nil {
		b.reason = reason
	}
	q.begun[key] = b
}

// failedOf returns the keys whose last work failed with such an error.
func (q *Queue) failedOf(kind func(error) bool) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var keys []string
	for key, b := range q.begun {
		if b.err != nil && kind(b.err) {
			keys = append(keys, key)
		}
	}
	return keys
}
