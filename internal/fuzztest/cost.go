// Package fuzztest bounds what one hostile input may cost. A fuzz target finds panics by
// itself; Cost makes a finding of an input that hangs or that takes memory out of
// proportion, too.
package fuzztest

import (
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// Cost is what one input may cost.
type Cost struct {
	// CPU is the time of the process's processors; 0 means 20 s. A busy machine does not
	// lengthen it.
	CPU time.Duration
	// Wall is the time until an input counts as a hang that uses no processor; 0 means
	// 5 minutes. It is generous, so that a busy machine does not exceed it.
	Wall time.Duration
	// Bytes is the memory that an empty input may allocate; 0 means 8 MiB.
	Bytes uint64
	// PerByte is the memory that each byte of the input may add; 0 means 1 KiB.
	PerByte uint64
}

// Within runs a function on an input of a number of bytes. It fails the test if the
// function allocates more than the cost allows. It ends the process with the stacks of
// all goroutines if the function takes too long: the fuzz engine then keeps the input,
// as after a panic. What other goroutines use meanwhile counts, too.
func (c Cost) Within(t testing.TB, size int, run func()) {
	t.Helper()
	c = c.withDefaults()
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(done)
	}()
	before := allocated()
	run()
	after := allocated()
	close(done)
	<-watched
	if most := c.Bytes + c.PerByte*uint64(size); after-before > most { //nolint:gosec // a length
		t.Fatalf("an input of %d bytes allocated %d bytes; want at most %d", size, after-before, most)
	}
}

// watch panics when the time is up.
func (c Cost) watch(done <-chan struct{}) {
	began, used := time.Now(), processTime()
	tick := time.NewTicker(min(c.CPU, c.Wall, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if cpu, wall := processTime()-used, time.Since(began); cpu > c.CPU || wall > c.Wall {
			debug.SetTraceback("all")
			panic(fmt.Sprintf("fuzztest: the input is not done after %v, and %v of the processors", wall, cpu))
		}
	}
}

func (c Cost) withDefaults() Cost {
	if c.CPU == 0 {
		c.CPU = 20 * time.Second
	}
	if c.Wall == 0 {
		c.Wall = 5 * time.Minute
	}
	if c.Bytes == 0 {
		c.Bytes = 8 << 20
	}
	if c.PerByte == 0 {
		c.PerByte = 1 << 10
	}
	return c
}

// allocated returns the bytes that the process allocated since its start. Unlike
// runtime.ReadMemStats it does not stop the world.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
