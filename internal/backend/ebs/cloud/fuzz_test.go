package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/fuzztest"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const (
	anyVolume   = "vol-0123456789abcdef0"
	anySnapshot = "snap-0123456789abcdef0"
	anyInstance = "i-0123456789abcdef0"
)

// questions are calls of every kind. They return an ID that must not be empty after
// success, or any text.
func questions() []func(context.Context, *Client) (string, error) {
	id := func(id string, err error) (string, error) { return id, err }
	return []func(context.Context, *Client) (string, error){
		func(ctx context.Context, c *Client) (string, error) {
			v, err := c.Volume(ctx, anyVolume)
			return id(v.ID, err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			i, err := c.Instance(ctx, anyInstance)
			return id(i.ID, err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			s, err := c.Snapshot(ctx, anySnapshot)
			return id(s.ID, err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			s, err := c.Status(ctx, anyVolume)
			return id(s.VolumeID, err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.VolumesNamed(ctx, "a")
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.SnapshotsNamed(ctx, "a")
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.InstanceType(ctx, "m5.large")
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) { _, err := c.Zones(ctx); return id("-", err) },
		func(ctx context.Context, c *Client) (string, error) {
			_, _, err := c.Modification(ctx, anyVolume)
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.FastRestores(ctx, anySnapshot)
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, _, err := c.LockOf(ctx, anySnapshot)
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.ListVolumes(ctx)
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.ListSnapshots(ctx, anyVolume)
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.CreateVolume(ctx, small("a"))
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) { return "-", c.DeleteVolume(ctx, anyVolume) },
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.AttachVolume(ctx, AttachInput{VolumeID: anyVolume, InstanceID: anyInstance, Device: "/dev/xvdaa"})
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			return "-", c.DetachVolume(ctx, anyVolume, anyInstance, false)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.ModifyVolume(ctx, ModifyInput{VolumeID: anyVolume, Size: 2})
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) {
			_, err := c.CreateSnapshot(ctx, CreateSnapshotInput{VolumeID: anyVolume})
			return id("-", err)
		},
		func(ctx context.Context, c *Client) (string, error) { return "-", c.DeleteSnapshot(ctx, anySnapshot) },
		func(ctx context.Context, c *Client) (string, error) {
			return "-", c.CreateTags(ctx, []string{anyVolume}, map[string]string{"a": "b"})
		},
	}
}

// liar answers every request with the same bytes. A call may ask from several goroutines.
type liar struct {
	status int
	body   []byte
	asked  atomic.Int64
}

func (l *liar) Do(r *http.Request) (*http.Response, error) {
	l.asked.Add(1)
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: l.status, Request: r, Header: http.Header{"Content-Type": {"text/xml"}}, ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(l.body)),
	}, nil
}

// answersOfEmulator are real answers of every kind.
func answersOfEmulator(f *testing.F) map[int][]byte {
	f.Helper()
	emulator, err := ec2emu.New(ec2emu.Options{World: world.Config{Knobs: world.Instant()}})
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = emulator.Close() }()
	if _, err := emulator.World().RunInstance(world.InstanceSpec{ID: anyInstance, Type: "m5.large", Zone: zone}); err != nil {
		f.Fatal(err)
	}
	recorder := &recorded{next: emulator.RoundTripper()}
	c, err := New(f.Context(), Options{Region: "us-west-2", Credentials: StaticCredentials("id", "secret"), HTTPClient: recorder, Pacing: PacingOptions{Off: true}})
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	found := map[int][]byte{}
	for i, question := range questions() {
		ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
		_, _ = question(ctx, c) // an error's answer is a seed, too
		cancel()
		found[i] = recorder.lastAnswer()
	}
	return found
}

// recorded keeps the last answer of a service, to whichever goroutine it was.
type recorded struct {
	next http.RoundTripper
	mu   sync.Mutex
	last []byte
}

func (r *recorded) lastAnswer() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *recorded) Do(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = body
	return response, nil
}

// FuzzAnswers is an EC2 that answers every request with the same bytes, through the real
// client and in virtual time: each call ends, with an answer about what was asked or with
// an Error that has a text.
func FuzzAnswers(f *testing.F) {
	f.Setenv("AWS_CA_BUNDLE", "") // each client would read all its certificates
	for i, body := range answersOfEmulator(f) {
		f.Add(uint8(i), uint16(200), body)
		f.Add(uint8(i), uint16(503), body)
	}
	for _, list := range []string{"volumeSet", "reservationSet", "snapshotSet", "volumeStatusSet", "instanceTypeSet", "volumeModificationSet", "availabilityZoneInfo"} {
		for i := range questions()[:13] {
			f.Add(uint8(i), uint16(200), fmt.Appendf(nil, "<R><%s><item/><item><tagSet><item/></tagSet></item></%s><nextToken>a</nextToken></R>", list, list))
		}
	}
	f.Add(uint8(0), uint16(400), []byte("<Response><Errors><Error><Code>InvalidVolume.NotFound</Code><Message>vol-0123456789abcdef0</Message></Error></Errors></Response>"))
	f.Add(uint8(0), uint16(200), []byte("<?xml version='1.0' encoding='utf-7'?><!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"))
	f.Add(uint8(0), uint16(200), bytes.Repeat([]byte("<a>"), 5000))
	f.Fuzz(func(t *testing.T, question uint8, status uint16, body []byte) {
		if status < 200 || status > 599 {
			return // not an answer of HTTP
		}
		ask := questions()[int(question)%len(questions())]
		fuzztest.Cost{Bytes: 256 << 20, PerByte: 64 << 10}.Within(t, len(body), func() {
			synctest.Test(t, func(t *testing.T) { askLiar(t, &liar{status: int(status), body: body}, ask) })
		})
	})
}

// answerLimit is a caller's deadline, in virtual time.
const answerLimit = 2 * time.Minute

func askLiar(t *testing.T, service *liar, ask func(context.Context, *Client) (string, error)) {
	t.Helper()
	c, err := New(t.Context(), Options{Region: "us-west-2", Credentials: StaticCredentials("id", "secret"), HTTPClient: service})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	id, err := ask(ctx, c)
	var failed *Error
	switch {
	case err == nil && id == "":
		t.Errorf("an answer about nothing, after %d requests", service.asked.Load())
	case err != nil && !errors.As(err, &failed) && !errors.Is(err, backend.ErrNotFound):
		t.Errorf("the error is %T: %v", err, err)
	case err != nil && err.Error() == "":
		t.Error("an error without a text")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// pager answers each request with an empty page of volumes that names another one.
type pager struct {
	differ int64
	asked  atomic.Int64
}

func (p *pager) Do(r *http.Request) (*http.Response, error) {
	asked := p.asked.Add(1)
	_ = r.Body.Close()
	body := fmt.Sprintf("<DescribeVolumesResponse><nextToken>%d</nextToken></DescribeVolumesResponse>", asked%p.differ)
	return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(body)))}, nil
}

// A list that never ends, at whatever answers in EC2's place, ends with an error: the
// client must not ask for ever.
func TestList_endsWhereEC2DoesNot(t *testing.T) {
	for _, differ := range []int64{1, 2, 1 << 30} {
		synctest.Test(t, func(t *testing.T) {
			service := &pager{differ: differ}
			c, err := New(t.Context(), Options{Region: "us-west-2", Credentials: StaticCredentials("id", "secret"), HTTPClient: service, Pacing: PacingOptions{Off: true}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.ListVolumes(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
				t.Errorf("%d tokens: %v", differ, err)
			}
			if service.asked.Load() > mostPages+10 {
				t.Errorf("%d tokens: %d requests", differ, service.asked.Load())
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
