//go:build kubernetes

package faults

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// gate blocks calls of the driver while it is closed.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil while the gate is open
	held atomic.Int32
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// pass returns when the gate is open, also after the caller of the driver has left.
func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return
	}
	g.held.Add(1)
	<-shut
}

func TestDriver_thatHangsBeforeItActs(t *testing.T) {
	var g gate
	w := newWorld(t, func(d *csidriver.Driver) {
		d.Before = func(_ context.Context, rpc string, _ any) error {
			if rpc == "CreateVolume" || rpc == "DeleteVolume" {
				g.pass()
			}
			return nil
		}
	})
	t.Cleanup(g.open)
	g.close()
	w.run()
	w.claims(4, "data")
	w.hasEvent("data-0", "ProvisioningFailed", "CreateVolume", "DeadlineExceeded")
	w.deleteClaim("data-0") // while the call is in flight
	g.open()
	w.bound("data-1", "data-2", "data-3")
	w.consistent()
	g.close()
	w.deleteAll()
	w.eventually("a call that hangs", func() string {
		if g.held.Load() < 5 {
			return "there is none"
		}
		return ""
	})
	g.open()
	w.empty()
}

func TestDriver_thatHangsAfterItActed(t *testing.T) {
	var g gate
	w := newWorld(t, func(d *csidriver.Driver) {
		d.Creation.Strict = true // a retry with other parameters is rejected
		d.After = func(_ context.Context, rpc string, _ any) error {
			if rpc == "CreateVolume" || rpc == "CreateSnapshot" {
				g.pass()
			}
			return nil
		}
	})
	t.Cleanup(g.open)
	w.run()
	w.claim("kept")
	w.bound()
	g.close()
	w.claims(3, "data")
	w.snapshot("snap", "kept")
	w.eventually("calls that hang", func() string {
		if g.held.Load() < 4 {
			return "there are not all four yet"
		}
		return ""
	})
	w.deleteClaim("data-0")
	time.Sleep(4 * time.Second) // longer than the timeout of a call
	g.open()
	w.bound("kept", "data-1", "data-2")
	w.ready("snap")
	w.consistent()
	w.deleteAll()
	w.empty()
}

func TestDriver_thatDiesInTheMiddleOfCalls(t *testing.T) {
	var g gate
	w := newWorld(t, func(d *csidriver.Driver) {
		d.After = func(_ context.Context, rpc string, _ any) error {
			if rpc == "CreateVolume" {
				g.pass()
			}
			return nil
		}
	})
	g.close()
	// The backoff is an hour: only the driver's reconnection can cause a retry.
	w.run("--retry-interval-start=1h", "--retry-interval-max=1h", "--timeout=60s")
	w.claims(3, "data")
	w.eventually("calls that hang", func() string {
		if g.held.Load() < 3 {
			return "there are not all three yet"
		}
		return ""
	})
	w.deleteClaim("data-0")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.stop()
	}()
	time.Sleep(time.Second)
	g.open() // the answers have no receiver
	<-stopped
	w.hasEvent("data-1", "ProvisioningFailed", "Unavailable")
	w.serve()
	w.bound("data-1", "data-2")
	w.consistent()
}

func TestDriver_thatReturnsWithAnotherNameOrCapabilities(t *testing.T) {
	cases := []struct {
		name   string
		change func(*csidriver.Driver)
		want   string
	}{
		{"another name", func(d *csidriver.Driver) { d.Name = "other.holdfast.dev" }, `and is "other.holdfast.dev"`},
		{"fewer capabilities", func(d *csidriver.Driver) { d.Controller = d.Controller[:1] }, "its capabilities differ"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			p := w.run()
			w.claim("data")
			w.bound()
			w.stop()
			c.change(w.driver)
			w.serve()
			if code := p.wait(t, testTimeout); code == 0 {
				t.Error("the process ends well, want an error: it must be started anew")
			}
			w.eventually("the log", func() string {
				if !contains(p.log.String(), c.want, "the driver has changed") {
					return "it does not say why the process ended: " + p.log.end()
				}
				return ""
			})
		})
	}
}

func TestDriver_thatReturnsInvalidAnswers(t *testing.T) {
	cases := []struct {
		name  string
		wrong func(answer *csi.Volume, another string)
		words string
	}{
		{"too small", func(v *csi.Volume, _ string) { v.CapacityBytes = 5 }, "with 5 bytes, less than the 1073741824 asked for"},
		{"without an ID", func(v *csi.Volume, _ string) { v.VolumeId = "" }, "without a volume_id"},
		{"empty instead of a copy", func(v *csi.Volume, _ string) { v.ContentSource = nil }, "not from the source asked for"},
		{"with the ID of another volume", func(v *csi.Volume, another string) { v.VolumeId = another }, "which is that of PersistentVolume"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var another atomic.Pointer[string] // while it is set, the driver lies
			w := newWorld(t, func(d *csidriver.Driver) {
				d.Creation.Answer = func(_ *csi.CreateVolumeRequest, v *csi.Volume) {
					if id := another.Load(); id != nil {
						c.wrong(v, *id)
					}
				}
			})
			w.run()
			w.claim("source")
			w.bound()
			for _, id := range w.driver.Volumes() {
				another.Store(&id)
			}
			w.claim("data", from("", "PersistentVolumeClaim", "source"))
			w.hasEvent("data", "ProvisioningFailed", c.words)
			if phase := w.pvcs()["data"].Status.Phase; phase == corev1.ClaimBound {
				t.Error("the claim is bound to nonsense")
			}
			another.Store(nil)
			w.bound()
			w.consistent()
			w.deleteAll()
			w.empty()
		})
	}
}

// contains reports whether a text contains all of the words.
func contains(text string, words ...string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
