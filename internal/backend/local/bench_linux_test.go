package local

import (
	"fmt"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func BenchmarkCreateVolume(b *testing.B) {
	for _, existing := range []int{0, 2000} {
		b.Run(fmt.Sprintf("next to %d", existing), func(b *testing.B) {
			pool := open(b, Options{Pool: poolDir(b), Overcommit: 1000})
			for i := range existing {
				create(b, pool, spec(fmt.Sprint("existing ", i), 8*mebibyte))
			}
			n := 0
			for b.Loop() {
				n++
				create(b, pool, spec(fmt.Sprint("new ", n), 8*mebibyte))
			}
		})
	}
}

func BenchmarkDeleteVolume(b *testing.B) {
	pool := open(b, Options{Pool: poolDir(b)})
	for b.Loop() {
		b.StopTimer()
		volume := create(b, pool, spec("one", 8*mebibyte))
		b.StartTimer()
		if err := pool.DeleteVolume(b.Context(), volume.ID); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenDevice(b *testing.B) {
	pool := open(b, Options{Pool: poolDir(b)})
	volume := create(b, pool, spec("one", 64*mebibyte))
	for b.Loop() {
		device, err := pool.OpenDevice(b.Context(), backend.DeviceRequest{VolumeID: volume.ID})
		if err != nil {
			b.Fatal(err)
		}
		if err := device.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCapacity(b *testing.B) {
	pool := open(b, Options{Pool: poolDir(b), Overcommit: 1000})
	for i := range 2000 {
		create(b, pool, spec(fmt.Sprint("existing ", i), 8*mebibyte))
	}
	for b.Loop() {
		if _, err := pool.Capacity(b.Context(), nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}
