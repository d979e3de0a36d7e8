package ebs

import (
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/backendtest"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// lag is longer than EC2 lags behind in these tests.
const lag = 2500 * time.Millisecond

func TestConformance(t *testing.T) {
	backendtest.RunVirtual(t, func(t *testing.T) backendtest.Subject {
		return subject(t, emulator(t, ec2emu.Options{World: world.Config{Knobs: world.Bench()}}))
	})
}

// The rules also apply if describes lag behind and go back in time, calls are
// throttled, and answers are lost after their effect.
func TestConformance_harshEC2(t *testing.T) {
	o := ec2emu.Options{World: world.Config{Knobs: world.Harsh()}, Knobs: ec2emu.Knobs{Throttling: ec2emu.Throttling{Preset: ec2emu.Default}}}
	backendtest.RunVirtual(t, func(t *testing.T) backendtest.Subject {
		emu := emulator(t, o)
		for _, kind := range []string{ec2emu.FaultDropReply, ec2emu.FaultDrop, ec2emu.FaultThrottle} {
			if _, err := emu.AddFault(ec2emu.Fault{Kind: kind, Probability: 0.05}); err != nil {
				t.Fatal(err)
			}
		}
		return subject(t, emu)
	})
}

func emulator(t *testing.T, o ec2emu.Options) *ec2emu.Server {
	t.Helper()
	emu, err := ec2emu.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := emu.Close(); err != nil {
			t.Error(err)
		}
	})
	return emu
}

func subject(t *testing.T, emu *ec2emu.Server) backendtest.Subject {
	t.Helper()
	client, err := cloud.New(t.Context(), cloud.Options{
		Region: "us-west-2", Credentials: cloud.StaticCredentials("id", "secret"), Lag: lag,
		HTTPClient: &http.Client{Transport: emu.RoundTripper()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	c, err := New(Options{Cloud: client})
	if err != nil {
		t.Fatal(err)
	}
	return backendtest.Subject{
		Controller: c,
		Reopen: func(t *testing.T) backendtest.Subject {
			time.Sleep(lag) // a new process knows nothing that makes it doubt an old answer
			return subject(t, emu)
		},
		Parameters: map[string]string{"type": "gp3", "encrypted": "true", "tagSpecification_1": "team=storage"},
		Mutable:    map[string]string{"iops": "3000"}, OtherMutable: map[string]string{"throughput": "150"},
	}
}
