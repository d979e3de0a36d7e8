package concurrency

import (
	"context"
	"errors"
	"testing"
	"time"
)

// questions is a Background whose questions the test answers one by one.
func questions(fresh time.Duration) (*Background[int], chan int) {
	answers := make(chan int)
	return &Background[int]{Fresh: fresh, Ask: func(context.Context) int { return <-answers }}, answers
}

func TestBackground_hangsNoCaller(t *testing.T) {
	b, answers := questions(0)
	for range 3 { // all of them share one question
		if got := b.Get(0); !got.At.IsZero() || got.Waiting == 0 {
			t.Fatalf("before there is an answer it is %+v", got)
		}
	}
	answers <- 7
	for b.Get(0).At.IsZero() {
		time.Sleep(time.Millisecond)
	}
	if got := b.Get(0); got.Value != 7 || got.Waiting == 0 {
		t.Errorf("while the next question runs the answer is %+v", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close of a question that hangs returns %v", err)
	}
	answers <- 8
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := b.Get(time.Hour); got.Value != 8 || got.Waiting != 0 {
		t.Errorf("after Close the answer is %+v", got)
	}
}

func TestBackground_waitsForTheFirstAnswer(t *testing.T) {
	b, answers := questions(time.Hour)
	go func() { answers <- 1 }()
	if got := b.Get(time.Hour); got.Value != 1 || got.Waiting != 0 {
		t.Errorf("the answer is %+v", got)
	}
	if got := b.Get(time.Hour); got.Value != 1 { // fresh: a second question would hang
		t.Errorf("the fresh answer is %+v", got)
	}
}

func TestBackground_asksAPartOfTheTime(t *testing.T) {
	asked := 0
	b := &Background[int]{Share: 1 << 20, Ask: func(context.Context) int {
		asked++
		time.Sleep(time.Millisecond) // a question that takes time, not a synchronization
		return asked
	}}
	for range 3 {
		b.Get(time.Hour)
	}
	if asked != 1 {
		t.Errorf("%d questions were asked, want one in %d times its own time", asked, b.Share)
	}
}
