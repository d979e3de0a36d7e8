package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// trace is what has happened in a run, a line for each step, action and note.
type trace struct {
	lines []string
	steps int
}

func (t *trace) add(at time.Duration, text string) {
	t.lines = append(t.lines, fmt.Sprintf("%11.3fs        %s", at.Seconds(), text))
}

// step adds a line that counts as a step.
func (t *trace) step(at time.Duration, text string) {
	t.steps++
	t.lines = append(t.lines, fmt.Sprintf("%11.3fs %6d %s", at.Seconds(), t.steps, text))
}

// hash identifies the trace.
func (t *trace) hash() string {
	h := sha256.New()
	for _, line := range t.lines {
		_, _ = h.Write([]byte(line)) // a hash takes all
		_, _ = h.Write([]byte{'\n'})
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
