package cloud

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Asking for the health makes no call, and a healthy client asks EC2 at
// the start and every three hours.
func TestHealth_costsNoCall(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		for range 24 * 360 { // every ten seconds for a day
			if err := r.Health(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if n := r.calls(""); n > 8 {
			t.Errorf("a day of probes made %d calls", n)
		}
	})
}

// Real calls show the health, too.
func TestHealth_realCallsShowIt(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		r.setAuth(t, ec2emu.Auth{AccessKeys: []string{"another"}})
		for range refusals {
			if err := r.Health(); err != nil {
				t.Errorf("one refused call does not make it unhealthy: %v", err)
			}
			if _, err := r.Volume(r.ctx, v.ID); !errors.Is(err, backend.ErrCredentials) {
				t.Errorf("%v, want ErrCredentials", err)
			}
		}
		err := r.Health()
		if !errors.Is(err, backend.ErrCredentials) || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
			t.Errorf("%v, want one that says what to do", err)
		}
		r.setAuth(t, ec2emu.Auth{})
		if _, err := r.Volume(r.ctx, v.ID); err != nil {
			t.Error(err)
		}
		if err := r.Health(); err != nil {
			t.Errorf("after a call that went well: %v", err)
		}
	})
}

func (r *rig) setAuth(t *testing.T, a ec2emu.Auth) {
	t.Helper()
	knobs := r.emu.Knobs()
	knobs.Auth = a
	if err := r.emu.SetKnobs(knobs); err != nil {
		t.Fatal(err)
	}
}

// Bad credentials are known from the start, and good ones within a minute.
func TestHealth_badCredentialsFromTheStart(t *testing.T) {
	options := bench()
	options.Knobs.Auth.Expired = true
	emulated(t, options, Options{}, func(t *testing.T, r *rig) {
		if err := r.Health(); !errors.Is(err, backend.ErrCredentials) {
			t.Error(err)
		}
		r.setAuth(t, ec2emu.Auth{})
		time.Sleep(time.Minute)
		if err := r.Health(); err != nil {
			t.Error(err)
		}
	})
}

// If only the permission for the check is missing, EC2 accepts the credentials.
func TestHealth_deniedIsNotUnhealthy(t *testing.T) {
	options := bench()
	options.Knobs.Auth.Denied = []string{"DescribeAvailabilityZones"}
	emulated(t, options, Options{}, func(t *testing.T, r *rig) {
		if err := r.Health(); err != nil {
			t.Error(err)
		}
	})
}

// noCredentials is a chain that finds none.
type noCredentials struct{}

func (noCredentials) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{}, errors.New("no EC2 IMDS role found")
}

func TestCredentials_missingOnesAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(t.Context(), Options{Region: "us-west-2", Credentials: noCredentials{}, HTTPClient: empty{}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		time.Sleep(time.Second)
		_, err = c.Volume(t.Context(), "vol-0123456789abcdef0")
		for _, err := range []error{err, c.Health()} {
			if !errors.Is(err, backend.ErrCredentials) || !strings.Contains(err.Error(), "no EC2 IMDS role found") || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
				t.Errorf("%v: want what failed and what to do", err)
			}
		}
	})
}

// The error for an EC2 that cannot be reached says so.
func TestHealth_unreachable(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		r.block(errNoHost, 1000)
		ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
		defer cancel()
		_, err := r.Volume(ctx, "vol-0123456789abcdef0")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := r.Health(); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "no such host") {
			t.Errorf("%v, want the cause", err)
		}
	})
}

// New needs a region only; without one the error says so.
func TestNew_needsARegionOnly(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	_, err := New(t.Context(), Options{HTTPClient: empty{}})
	if err == nil || !strings.Contains(err.Error(), "no region: set AWS_REGION or reach IMDS") {
		t.Errorf("%v, want one that says what to set", err)
	}
	t.Setenv("AWS_REGION", "eu-west-1")
	c, err := New(t.Context(), Options{HTTPClient: empty{}, Credentials: StaticCredentials("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	if c.Region() != "eu-west-1" {
		t.Errorf("the region is %q", c.Region())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Without AWS_REGION the instance metadata service is asked, for a bounded time.
func TestNew_asksTheInstanceForTheRegion(t *testing.T) {
	emu, err := ec2emu.New(ec2emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = emu.Close() }()
	id, err := emu.World().RunInstance(worldInstance())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(emu.Metadata(id))
	defer server.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_REGION", "")
	c, err := New(t.Context(), Options{HTTPClient: empty{}, Credentials: StaticCredentials("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	if c.Region() != "us-west-2" {
		t.Errorf("the region is %q", c.Region())
	}
	_ = c.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// Requests are sent to AWS_EC2_ENDPOINT, with the driver's name in the user agent.
func TestNew_endpointAndUserAgent(t *testing.T) {
	agents := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agents <- r.UserAgent()
		_, _ = w.Write([]byte("<Response/>"))
	}))
	defer server.Close()
	t.Setenv("AWS_EC2_ENDPOINT", server.URL)
	registry := prometheus.NewRegistry()
	c, err := New(t.Context(), Options{Region: "us-west-2", Credentials: StaticCredentials("a", "b"), UserAgent: "holdfast/1.2", UserAgentExtra: "helm", Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Zones(t.Context()); err != nil {
		t.Error(err)
	}
	// The check at the start may find that this call has shown the health already.
	for range len(agents) {
		if agent := <-agents; !strings.Contains(agent, "holdfast/1.2") || !strings.HasSuffix(agent, " helm") {
			t.Errorf("the user agent is %q", agent)
		}
	}
	if all, err := registry.Gather(); err != nil || len(all) == 0 {
		t.Errorf("%d metrics, %v", len(all), err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if all, err := registry.Gather(); err != nil || len(all) != 0 {
		t.Errorf("%d metrics are left after Close (%v)", len(all), err)
	}
}

// Callers that leave do not make EC2 unhealthy, such as a sidecar that exits, or a call
// that a later one supersedes.
func TestHealth_callersThatLeaveDoNotCount(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v, i := r.volume(t, "pvc-1"), r.instance(t)
		for range 3 * refusals {
			ctx, cancel := context.WithTimeout(r.ctx, 10*time.Millisecond)
			if _, err := r.Volume(ctx, v.ID); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			ctx, cancel = context.WithCancel(r.ctx)
			time.AfterFunc(20*time.Millisecond, cancel)
			if err := r.DeleteVolume(ctx, v.ID); !errors.Is(err, context.Canceled) {
				t.Error(err, i)
			}
		}
		if err := r.Health(); err != nil {
			t.Error(err)
		}
	})
}

// An EC2 that does not answer within any caller's time is not well.
func TestHealth_callersWhoWaitInVainSaySomething(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		v := r.volume(t, "pvc-1")
		knobs := r.emu.Knobs()
		knobs.Latency = map[string]world.Takes{"*": world.Fixed(time.Hour)}
		if err := r.emu.SetKnobs(knobs); err != nil {
			t.Fatal(err)
		}
		for range refusals {
			ctx, cancel := context.WithTimeout(r.ctx, 15*time.Second)
			if _, err := r.Volume(ctx, v.ID); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			synctest.Wait()
		}
		if err := r.Health(); err == nil {
			t.Error("EC2 has not answered for 45 seconds")
		}
	})
}
