package concurrency

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

func TestQueue_theSecondWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue Queue
		unlock, err := queue.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := queue.Lock(t.Context(), "b")
		if err != nil {
			t.Fatalf("another key: %v", err)
		}
		other()
		entered := false
		go func() {
			again, err := queue.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			entered = true
			again()
		}()
		if synctest.Wait(); entered {
			t.Error("a locked key was locked again")
		}
		unlock()
		if synctest.Wait(); !entered {
			t.Error("an unlocked key was not locked")
		}
		if len(queue.tickets) != 0 {
			t.Errorf("left: %d keys", len(queue.tickets))
		}
	})
}

func TestQueue_waitsNoLongerThanTheContext(t *testing.T) {
	var queue Queue
	unlock, err := queue.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := queue.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	unlock()
	if len(queue.tickets) != 0 {
		t.Errorf("left: %d keys", len(queue.tickets))
	}
}

func TestQueue_admitsUpToTheLimitInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue Queue
		var leave []func()
		var order []int
		for i := range 6 {
			go func() {
				l, err := queue.Enter(t.Context(), "a", 2)
				if err != nil {
					t.Error(err)
				}
				leave, order = append(leave, l), append(order, i)
			}()
			synctest.Wait()
		}
		for entered := 2; entered <= 6; entered++ {
			if len(order) != entered || !slices.IsSorted(order) {
				t.Errorf("entered: %v; want %d, in order", order, entered)
			}
			leave[entered-2]()
			synctest.Wait()
		}
		leave[5]()
		if len(queue.tickets) != 0 {
			t.Errorf("left: %d keys", len(queue.tickets))
		}
	})
}
