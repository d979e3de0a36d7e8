package server

import (
	"testing"
	"time"
)

func TestRetry_doublesUpToItsMost(t *testing.T) {
	limits := Limits{}.withDefaults()
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 1000: 30 * time.Second} {
		for range 20 {
			if got := limits.retry(failures); got > want || got < want*3/4-1 {
				t.Errorf("after %d failures the next attempt is in %v, want up to %v", failures, got, want)
			}
		}
	}
}
