package reconcile

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// A claim's partition is its class, which it may get while it waits: it is worked on
// once, and no room of either partition is lost.
func TestQueue_aKeyMayChangeItsPartitionWhileItWaits(t *testing.T) {
	var mu sync.Mutex
	calls, partitions := map[string]int{}, map[string]string{}
	release := make(chan struct{})
	q := newQueue(Controller{
		Name: "partitions",
		Partition: func(key string) string {
			mu.Lock()
			defer mu.Unlock()
			return partitions[key]
		},
		Do: func(context.Context, string) (time.Duration, error) { <-release; return 0, nil },
	})
	do := q.controller.Do
	q.controller.Do = func(ctx context.Context, key string) (time.Duration, error) {
		mu.Lock()
		calls[key]++
		mu.Unlock()
		return do(ctx, key)
	}
	q.start(t.Context())
	for i := range parallel {
		q.Add(fmt.Sprint(i))
	}
	q.Add("k")
	mu.Lock()
	partitions["k"] = "its class"
	mu.Unlock()
	q.changed("k", nil)
	close(release)
	q.calls.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.busy)+len(q.waiting)+len(q.items) > 0 || calls["k"] != 1 || len(calls) != parallel+1 {
		t.Errorf("busy %v, waiting %v, %d items, %v", q.busy, q.waiting, len(q.items), calls)
	}
}
