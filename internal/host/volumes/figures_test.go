package volumes

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

func answering(key string, value int64, asked *atomic.Int64) question[int64] {
	return question[int64]{key: key, driver: "d", ask: func(context.Context) (*int64, error) {
		asked.Add(1)
		return &value, nil
	}}
}

func TestFigures_areAskedForOnceInAWhile(t *testing.T) {
	var set figureSet[int64]
	var asked atomic.Int64
	questions := []question[int64]{answering("a", 1, &asked), answering("b", 2, &asked)}
	for range 3 {
		known := set.current(questions)
		if len(known) != 2 || *known["a"] != 1 || *known["b"] != 2 {
			t.Fatalf("known are %v", known)
		}
	}
	if asked.Load() != 2 {
		t.Errorf("the drivers were asked %d times, want once for each", asked.Load())
	}
	set.known["a"].Fresh = 0 // it is old at once
	for asked.Load() < 3 {
		set.current(questions)
	}
	if known := set.current(questions[:1]); len(known) != 1 {
		t.Errorf("what nobody asks for any more is kept: %v", known)
	}
}

func TestFigures_ofADriverThatDoesNotSayAreUnknown(t *testing.T) {
	var set figureSet[int64]
	value := int64(3)
	known := set.current([]question[int64]{
		{key: "fails", driver: "d", ask: func(context.Context) (*int64, error) { return &value, errors.New("no") }},
		{key: "silent", driver: "d", ask: func(context.Context) (*int64, error) { return nil, nil }},
	})
	if len(known) != 2 || known["fails"] != nil || known["silent"] != nil {
		t.Errorf("known are %v", known)
	}
}

// A driver that hangs costs its first caller a moment, and later ones nothing. However
// many callers there are, it is not asked again.
func TestFigures_doNotWaitForADriverThatHangs(t *testing.T) {
	var set figureSet[int64]
	var asked, hung atomic.Int64
	release, ended := make(chan struct{}), make(chan struct{})
	hanging := question[int64]{key: "hung", driver: "hung", ask: func(context.Context) (*int64, error) {
		hung.Add(1)
		<-release
		close(ended)
		return nil, nil
	}}
	questions := []question[int64]{hanging, answering("a", 1, &asked)}
	known := set.current(questions) // waits a moment
	for known["a"] == nil {
		known = set.current(questions)
	}
	if hung.Load() > 1 || known["hung"] != nil {
		t.Errorf("the hanging driver was asked %d times", hung.Load())
	}
	close(release)
	<-ended
	if err := set.known["hung"].Close(t.Context()); err != nil {
		t.Error(err)
	}
}
