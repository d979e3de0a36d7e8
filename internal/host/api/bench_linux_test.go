package api

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func BenchmarkGet(b *testing.B) {
	f := serve(b)
	f.put(b, claimNamed("data", nil))
	for b.Loop() {
		if _, err := f.Get(b.Context(), kindNamed("persistentvolumeclaims"), "default", "data"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkList_ofAThousand(b *testing.B) {
	f := serve(b)
	var claims []store.Object
	for n := range 1000 {
		claims = append(claims, claimNamed(fmt.Sprint("data", n), nil))
	}
	f.put(b, claims...)
	for b.Loop() {
		if _, err := f.List(b.Context(), kindNamed("persistentvolumeclaims"), ListOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// From a write to the last of a hundred watchers, and the memory of each.
func BenchmarkWatch_ofAHundred(b *testing.B) {
	f := serve(b)
	ctx, cancel := context.WithCancel(b.Context())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	seen := make(chan struct{}, 100)
	var watchers sync.WaitGroup
	for range 100 {
		watchers.Go(func() {
			_ = f.Watch(ctx, kindNamed("storageclasses"), ListOptions{}, func(WatchEvent) error {
				seen <- struct{}{}
				return nil
			})
		})
	}
	class := classNamed("fast")
	f.put(b, class)
	for range 100 {
		<-seen
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	var n int
	begin := time.Now()
	for b.Loop() {
		n++
		class.Parameters = map[string]string{"n": fmt.Sprint(n)}
		f.put(b, class)
		for range 100 {
			<-seen
		}
	}
	b.ReportMetric(float64(time.Since(begin).Microseconds())/float64(n*100), "µs/watcher")
	b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/100/1024, "KiB/watcher")
	cancel()
	watchers.Wait()
}
