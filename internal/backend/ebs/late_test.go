package ebs

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// stubborn executes a request that has reached EC2 also after its client has left, as EC2
// does. The emulator, called in process, drops a request that it has not begun.
type stubborn struct{ http.RoundTripper }

func (t stubborn) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_ = r.Body.Close()
	own := r.Clone(context.WithoutCancel(r.Context()))
	own.Body = io.NopCloser(bytes.NewReader(body))
	type outcome struct {
		response *http.Response
		err      error
	}
	done := make(chan outcome, 1)
	go func() {
		response, err := t.RoundTripper.RoundTrip(own) //nolint:bodyclose // the caller closes it, or the answer is lost
		done <- outcome{response, err}
	}()
	select {
	case o := <-done:
		return o.response, o.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// startStubborn is start with an EC2 that completes every request.
func (s *stage) startStubborn() process {
	s.Helper()
	client, err := cloud.New(s.Context(), cloud.Options{
		Region: "us-west-2", Credentials: cloud.StaticCredentials("id", "secret"),
		HTTPClient: &http.Client{Transport: stubborn{s.emu.RoundTripper()}},
	})
	s.must(err)
	s.Cleanup(func() { s.must(client.Close()) })
	time.Sleep(time.Second)
	c, err := New(Options{Cloud: client})
	s.must(err)
	return process{guard.New(c), c}
}

// slowly has EC2 take a time for an action, half of it before it is done.
func (s *stage) slowly(action string, takes time.Duration) {
	s.Helper()
	knobs := s.emu.Knobs()
	knobs.Latency = map[string]world.Takes{"*": world.Fixed(50 * time.Millisecond), action: world.Fixed(takes)}
	s.must(s.emu.SetKnobs(knobs))
}

// An AttachVolume that EC2 does slowly and whose caller has left still runs: a
// detachment that was answered with success stays in effect.
func TestDetach_afterASlowAttachWhoseCallerLeft(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, 4 * time.Second, 10 * time.Second, 12 * time.Second} {
		staged(t, usual(), func(s *stage) {
			p := s.startStubborn()
			id, node := s.volume(p, "pvc-1"), s.node()
			s.slowly("AttachVolume", takes)
			_ = within(s.Context(), 400*time.Millisecond, func(ctx context.Context) error {
				_, err := p.Attach(ctx, id, node, forOneNode)
				return err
			})
			s.must(p.Detach(s.Context(), id, node))
			time.Sleep(time.Minute)
			if left := s.attachedTo(id); len(left) > 0 {
				s.Errorf("AttachVolume took %s: detached, and then %q", takes, left)
			}
			p.controller.Close()
		})
	}
}

// The same with a slow DetachVolume: an attachment that was answered with success
// stays in effect.
func TestAttach_afterASlowDetachWhoseCallerLeft(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, 4 * time.Second, 10 * time.Second, 24 * time.Second} {
		staged(t, usual(), func(s *stage) {
			p := s.startStubborn()
			id, node := s.volume(p, "pvc-1"), s.node()
			_, err := p.Attach(s.Context(), id, node, forOneNode)
			s.must(err)
			time.Sleep(time.Minute)
			s.slowly("DetachVolume", takes)
			_ = within(s.Context(), 400*time.Millisecond, func(ctx context.Context) error { return p.Detach(ctx, id, node) })
			_, err = p.Attach(s.Context(), id, node, forOneNode)
			s.must(err)
			time.Sleep(time.Minute)
			if left := s.attachedTo(id); len(left) != 1 || left[0] != node+" attached" {
				s.Errorf("DetachVolume took %s: attached, and then %q", takes, left)
			}
			p.controller.Close()
		})
	}
}
