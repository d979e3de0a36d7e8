package store

import (
	"fmt"
	"sync/atomic"
	"testing"
)

func BenchmarkUpdate(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s, err := Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			var n atomic.Int64
			b.SetParallelism((writers + 1) / 2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					key := fmt.Sprint(n.Add(1) % 1000)
					if err := s.Update(func(tx *Tx) error { return tx.Uses().Put(key, &VolumeUse{Name: key, Handle: fmt.Sprint(n.Load())}) }); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
