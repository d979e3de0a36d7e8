package cloud

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// zone is where everything is in these tests.
const zone = "us-west-2a"

// rig is a client and the EC2 that it speaks to, in virtual time.
type rig struct {
	*Client
	emu  *ec2emu.Server
	ctx  context.Context
	wire *wire
}

// wire is the connection to the emulator, which can be interrupted.
type wire struct {
	http.RoundTripper
	mu    sync.Mutex
	cause error
	count int
}

// Ways in which a request does not reach EC2.
var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errNoHost  = &net.DNSError{Err: "no such host", Name: "ec2.us-west-2.amazonaws.com", IsNotFound: true}
)

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	w.mu.Lock()
	blocked := w.count > 0
	if blocked {
		w.count--
	}
	w.mu.Unlock()
	if blocked {
		_ = request.Body.Close()
		return nil, w.cause
	}
	return w.RoundTripper.RoundTrip(request)
}

// block keeps the next requests from reaching EC2.
func (r *rig) block(cause error, count int) {
	r.wire.mu.Lock()
	defer r.wire.mu.Unlock()
	r.wire.cause, r.wire.count = cause, count
}

// empty answers every request with an empty element.
type empty struct{}

func (empty) Do(request *http.Request) (*http.Response, error) {
	_ = request.Body.Close()
	return &http.Response{
		StatusCode: http.StatusOK, Request: request, Header: http.Header{"Content-Type": {"text/xml"}},
		Body: io.NopCloser(strings.NewReader("<Response/>")),
	}, nil
}

// emulated runs a test in virtual time against an emulator.
func emulated(t *testing.T, options ec2emu.Options, o Options, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		emu, err := ec2emu.New(options)
		if err != nil {
			t.Fatal(err)
		}
		w := &wire{RoundTripper: emu.RoundTripper()}
		o.Region = "us-west-2"
		o.Credentials = StaticCredentials("id", "secret")
		if o.HTTPClient == nil {
			o.HTTPClient = &http.Client{Transport: w}
		}
		c, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the first check of health is over
		emu.Reset()
		test(t, &rig{c, emu, t.Context(), w})
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := emu.Close(); err != nil {
			t.Error(err)
		}
	})
}

// bench are the times that the numbers in the issue are about.
func bench() ec2emu.Options {
	return ec2emu.Options{
		World: world.Config{Knobs: world.Bench()},
		Knobs: ec2emu.Knobs{Latency: map[string]world.Takes{"*": world.Fixed(50 * time.Millisecond)}},
	}
}

// creation of a small volume.
func small(name string) CreateVolumeInput {
	return CreateVolumeInput{ClientToken: name, Zone: zone, Type: "gp3", Size: 1, Tags: map[string]string{NameTag: name, ManagedTag: "true"}}
}

// volume makes one and waits for it.
func (r *rig) volume(t *testing.T, name string) Volume {
	t.Helper()
	v, err := r.create(r.ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (r *rig) create(ctx context.Context, name string) (Volume, error) {
	v, err := r.CreateVolume(ctx, small(name))
	if err != nil {
		return v, err
	}
	all, err := r.WaitNamed(ctx, name, Expect{Kind: "create"}, func(all []Volume) (bool, error) {
		return slices.ContainsFunc(all, func(other Volume) bool { return other.ID == v.ID && other.State == VolumeAvailable }), nil
	})
	if err != nil {
		return v, err
	}
	return all[0], nil
}

func (r *rig) instance(t *testing.T) string {
	t.Helper()
	id, err := r.emu.World().RunInstance(world.InstanceSpec{Type: "m7i.48xlarge", Zone: zone})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute) // it runs
	return id
}

// attach does what the backend does, without its checks.
func (r *rig) attach(ctx context.Context, volume, instance, device string) error {
	if _, err := r.AttachVolume(ctx, AttachInput{VolumeID: volume, InstanceID: instance, Device: device}); err != nil {
		return err
	}
	_, err := r.WaitVolume(ctx, volume, Expect{Kind: "attach"}, func(v Volume, _ bool) (bool, error) {
		return len(v.Attachments) == 1 && v.Attachments[0].State == Attached, nil
	})
	return err
}

func (r *rig) detach(ctx context.Context, volume, instance string) error {
	if err := r.DetachVolume(ctx, volume, instance, false); err != nil {
		return err
	}
	_, err := r.WaitVolume(ctx, volume, Expect{Kind: "detach"}, func(v Volume, _ bool) (bool, error) {
		return len(v.Attachments) == 0, nil
	})
	return err
}

func (r *rig) calls(action string) int { return int(r.emu.Statistics().Calls(action)) }

// fault adds one to the emulator.
func (r *rig) fault(t *testing.T, f ec2emu.Fault) {
	t.Helper()
	if _, err := r.emu.AddFault(f); err != nil {
		t.Fatal(err)
	}
}

// workers calls operate n times, atOnce calls at a time, and returns how long each
// took.
func workers(t *testing.T, n, atOnce int, operate func(i int) error) []time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	numbers := make(chan int)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := range numbers {
				began := time.Now()
				if err := operate(i); err != nil {
					t.Errorf("operation %d: %v", i, err)
				}
				took[i] = time.Since(began)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	all.Wait()
	return took
}

// median of durations.
func median(all []time.Duration) time.Duration {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[len(all)/2]
}

// device is the n-th name for a device.
func device(n int) string {
	return fmt.Sprintf("/dev/xvd%c%c", 'a'+n/26%4, 'a'+n%26)
}

// worldInstance is any instance.
func worldInstance() world.InstanceSpec { return world.InstanceSpec{Zone: zone} }
