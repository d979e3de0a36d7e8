package attachment

import (
	"fmt"
	"testing"
	"time"
)

// An operation that ends while its volume is detached from every instance is known by
// its operation before and by its memory after.
func TestMachine_knowsAnOperationThatEnds(t *testing.T) {
	m := New(newEC2(), Options{})
	defer m.Close()
	for i := range 500 { // which take a while to read
		m.remember(pair{"vol-1", fmt.Sprintf("i-other-%d", i)}, func(*memory) {})
	}
	for i := range 1000 {
		p := pair{"vol-1", fmt.Sprintf("i-%d", i)}
		m.mu.Lock()
		m.operations[p] = &operation{pair: p}
		m.mu.Unlock()
		began, unknown := make(chan struct{}), make(chan bool)
		ended := make(chan struct{})
		go func() {
			missed := !m.known(p.volume)[p.instance]
			close(began)
			for !isClosed(ended) {
				missed = missed || !m.known(p.volume)[p.instance]
			}
			unknown <- missed
		}()
		<-began
		m.remember(p, func(k *memory) { k.attachSent = time.Now() })
		m.mu.Lock()
		delete(m.operations, p)
		m.mu.Unlock()
		close(ended)
		if <-unknown {
			t.Fatalf("round %d: the instance of an operation that ended is not known", i)
		}
	}
}

// While many volumes are attached, each attach reads only what concerns its volume.
func TestMachine_claimReadsOnlyItsVolume(t *testing.T) {
	m := New(newEC2(), Options{})
	defer m.Close()
	for i := range 1000 {
		p := pair{fmt.Sprintf("vol-%d", i), "i-a"}
		m.remember(p, func(k *memory) { k.attachSent = time.Now() })
		if err := m.claim(p, desired{attach: true}); err != nil {
			t.Fatal(err)
		}
	}
	p := pair{"vol-1000", "i-a"}
	if allocated := testing.AllocsPerRun(10, func() {
		if err := m.claim(p, desired{attach: true}); err != nil {
			t.Fatal(err)
		}
		m.release(p)
	}); allocated > 10 {
		t.Errorf("claim allocates %v times", allocated)
	}
}
