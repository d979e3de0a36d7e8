package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

func TestParse_withoutFlagsHasTwoInstances(t *testing.T) {
	s, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := []instance{
		{id: "i-00000000000000001", kind: "m5.large", zone: "us-west-2a"},
		{id: "i-00000000000000002", kind: "m5.large", zone: "us-west-2a"},
	}
	if diff := cmp.Diff(want, s.instances, cmp.AllowUnexported(instance{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	for name, address := range map[string]string{"EC2": s.address, "control": s.control, "metadata": s.metadata} {
		if !strings.HasPrefix(address, "127.0.0.1:") {
			t.Errorf("%s listens on %s, want loopback", name, address)
		}
	}
}

func TestParse_readsFlagsAndAFileOfKnobs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "knobs.json")
	if err := os.WriteFile(file, []byte(`{"endpoint": {"auth": {"required": true}}, "world": {"quotas": {"volumes": 7}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := parse([]string{
		"--instance=i-0123456789abcdef0=c7i.large,eu-west-1b,interfaces=3,network=10.1.0.0/16", "--times=bench", "--latency=50ms",
		"--latency=CreateVolume=1s..2s", "--throttling=default", "--throttling-mode=shared", "--knobs=" + file,
		`--fault={"kind":"throttle","count":2}`, `--volume-fault={"kind":"stuck-attaching"}`,
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	one := s.instances[0]
	if len(s.instances) != 1 || one.kind != "c7i.large" || one.zone != "eu-west-1b" || one.interfaces != 3 || one.network.String() != "10.1.0.0/16" {
		t.Errorf("instances %+v", s.instances)
	}
	if k := s.knobs.Endpoint; k.Latency["*"] != world.Fixed(50*time.Millisecond) || k.Latency["CreateVolume"] != world.Uniform(time.Second, 2*time.Second) ||
		k.Throttling.Preset != "default" || k.Throttling.Mode != "shared" || !k.Auth.Required {
		t.Errorf("knobs of the endpoint %+v", k)
	}
	if k := s.knobs.World; k.Quotas.Volumes != 7 || k.Times.Attach != world.Fixed(2*time.Second) {
		t.Errorf("knobs of the world %+v", k)
	}
	if len(s.faults) != 1 || s.faults[0].Count != 2 || len(s.volumeFaults) != 1 || s.volumeFaults[0].Kind != world.StuckAttaching {
		t.Errorf("faults %+v, of volumes %+v", s.faults, s.volumeFaults)
	}
}

func TestParse_refusesWhatItCannotUse(t *testing.T) {
	for _, flag := range []string{
		"--instance=i-1", "--instance=i-1=m5.large", "--instance=i-1=m5.large,us-west-2a,interfaces=0",
		"--instance=i-1=m5.large,us-west-2a,network=ten", "--instance=i-1=m5.large,us-west-2a,colour=red",
		"--latency=soon", "--latency=-1s", "--times=never", `--fault={"kind":1}`, `--fault={"colour":"red"}`, "--knobs=/does/not/exist",
		"--unknown", "argument",
	} {
		if _, err := parse([]string{flag}, io.Discard); err == nil {
			t.Errorf("%s was accepted", flag)
		}
		var stderr bytes.Buffer
		if code := run([]string{flag}, io.Discard, &stderr); code != misled || stderr.Len() == 0 {
			t.Errorf("%s: exit code %d with %q, want %d and a sentence", flag, code, stderr.String(), misled)
		}
	}
	if _, err := parse([]string{"--help"}, io.Discard); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

func TestRun_refusesWhatTheWorldRefuses(t *testing.T) {
	for _, flag := range []string{
		"--instance=x=m5.large,us-west-2a", "--instance=i-0123456789abcdef0=m5.large,mars-1a", "--throttling=loose", "--latency=Fly=1s",
		`--fault={"kind":"explode"}`, `--volume-fault={"kind":"explode"}`, "--address=256.0.0.1:0",
	} {
		s, err := parse([]string{"--address=127.0.0.1:0", "--control-address=", "--metadata-address=", flag}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // so that a mistake does not hang
		if err := s.run(ctx, io.Discard, io.Discard); err == nil {
			t.Errorf("%s was accepted", flag)
		}
	}
}

// TestRun_saysHowToReachIt follows what the command prints, as a user would.
func TestRun_saysHowToReachIt(t *testing.T) {
	s, err := parse([]string{"--address=127.0.0.1:0", "--control-address=127.0.0.1:0", "--metadata-address=127.0.0.1:0", "--latency=0s"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := s.run(ctx, in, io.Discard)
		ran <- errors.Join(err, in.Close())
	}()
	said := map[string]string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		for word := range strings.FieldsSeq(lines.Text()) {
			if name, url, ok := strings.Cut(word, "="); ok {
				said[name] = url
			}
			if strings.HasSuffix(word, "/metrics") {
				said["metrics"] = word
			}
		}
		if said["AWS_EC2_METADATA_SERVICE_ENDPOINT"] != "" {
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	for url, want := range map[string]string{
		said["AWS_ENDPOINT_URL_EC2"] + "/?Action=DescribeInstances&Version=2016-11-15":              "<instanceId>i-00000000000000002</instanceId>",
		said["AWS_EC2_METADATA_SERVICE_ENDPOINT"] + "/latest/meta-data/instance-id":                 "i-00000000000000001",
		said["AWS_EC2_METADATA_SERVICE_ENDPOINT"] + "/latest/meta-data/placement/availability-zone": "us-west-2a",
	} {
		fetch(t, url, want)
	}
	fetch(t, said["metrics"], `ec2emu_calls_total{action="DescribeInstances",code="OK"} 1`)
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

func fetch(t *testing.T, url, want string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil || !strings.Contains(string(body), want) {
		t.Errorf("%s: %s (%v), want %q", url, body, err, want)
	}
}
