// Package fuzztest bounds what one hostile input may cost. A fuzz target finds panics by
// itself; Cost makes a finding of an input that hangs or that takes memory out of
// proportion, too.
package fuzztest

import (
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// Cost is what one input may cost.
type Cost struct {
	// Time until the input counts as a hang; 0 means 20 s. It is generous, so that a busy
	// machine does not exceed it.
	Time time.Duration
	// Bytes is the memory that an empty input may allocate; 0 means 8 MiB.
	Bytes uint64
	// PerByte is the memory that each byte of the input may add; 0 means 1 KiB.
	PerByte uint64
}

// Within runs a function on an input of a number of bytes. It fails the test if the
// function allocates more than the cost allows. It ends the process with the stacks of
// all goroutines if the function takes too long: the fuzz engine then keeps the input,
// as after a panic. What other goroutines allocate meanwhile counts, too.
func (c Cost) Within(t testing.TB, size int, run func()) {
	t.Helper()
	c = c.withDefaults()
	hang := time.AfterFunc(c.Time, func() {
		debug.SetTraceback("all")
		panic("fuzztest: the input is not done after " + c.Time.String())
	})
	before := allocated()
	run()
	after := allocated()
	hang.Stop()
	if most := c.Bytes + c.PerByte*uint64(size); after-before > most {
		t.Fatalf("an input of %d bytes allocated %d bytes; want at most %d", size, after-before, most)
	}
}

func (c Cost) withDefaults() Cost {
	if c.Time == 0 {
		c.Time = 20 * time.Second
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
