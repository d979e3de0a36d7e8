package ec2emu

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// steer is one call of the control interface that is to succeed.
func steer(t *testing.T, s *Server, method, path, body string) answered {
	t.Helper()
	a := tryToSteer(t, s, method, path, body)
	if a.status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	return a
}

func tryToSteer(t *testing.T, s *Server, method, path, body string) answered {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://control"+path, strings.NewReader(body))
	a, err := send(roundTripper{s.Control()}, r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func read[T any](t *testing.T, a answered) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return v
}

func TestControl_changesOnlyTheKnobsThatAreNamed(t *testing.T) {
	s := newServer(t, Options{Knobs: Knobs{Latency: map[string]world.Takes{"CreateVolume": world.Fixed(time.Millisecond)}}})
	got := read[AllKnobs](t, steer(t, s, http.MethodPatch, "/knobs",
		`{"endpoint": {"latency": {"*": "1ms..2ms"}, "throttling": {"preset": "tight"}}, "world": {"times": {"attach": "2s~0.5"}}}`))
	if got.Endpoint.Latency["CreateVolume"] != world.Fixed(time.Millisecond) ||
		got.Endpoint.Latency["*"] != world.Uniform(time.Millisecond, 2*time.Millisecond) ||
		got.Endpoint.Throttling.Preset != Tight || got.World.Cooldown != world.CooldownOff {
		t.Errorf("knobs %+v", got)
	}
	if s.World().Knobs().Times.Attach != world.LogNormal(2*time.Second, 0.5) || s.Knobs().Throttling.Preset != Tight {
		t.Error("the knobs are not in force")
	}
	before := s.AllKnobs()
	for name, patch := range map[string]string{
		"an unknown knob":             `{"endpoint": {"colour": "red"}}`,
		"an unknown action":           `{"endpoint": {"latency": {"CreateVolumes": "1s"}}}`,
		"an unknown preset":           `{"endpoint": {"throttling": {"preset": "loose"}}}`,
		"no duration":                 `{"world": {"times": {"attach": "soon"}}}`,
		"an unknown cooldown":         `{"endpoint": {"auth": {"expired": true}}, "world": {"cooldown": "never"}}`,
		"a negative bucket":           `{"endpoint": {"throttling": {"buckets": {"CreateVolume": {"burst": -1}}}}}`,
		"an unknown hop limit":        `{"endpoint": {"metadata": {"hopLimit": "2"}}}`,
		"not JSON":                    `knobs`,
		"something behind the object": `{} {}`,
	} {
		t.Run(name, func(t *testing.T) {
			tryToSteer(t, s, http.MethodPatch, "/knobs", patch).has(t, http.StatusBadRequest, `{"error":`)
			if after := s.AllKnobs(); after.Endpoint.Auth.Expired || after.World.Cooldown != before.World.Cooldown {
				t.Errorf("the knobs changed: %+v", after)
			}
		})
	}
}

func TestControl_addsAndRemovesFaultsAndFaults(t *testing.T) {
	s := newServer(t, Options{})
	added := read[Fault](t, steer(t, s, http.MethodPost, "/faults", `{"kind": "error", "action": "CreateVolume", "code": "VolumeLimitExceeded", "status": 400, "for": "1h"}`))
	mustPost(t, s, createForm).has(t, 400, "VolumeLimitExceeded")
	if all := read[[]Fault](t, steer(t, s, http.MethodGet, "/faults", "")); len(all) != 1 || all[0].ID != added.ID {
		t.Errorf("faults %+v, want %s", all, added.ID)
	}
	steer(t, s, http.MethodPost, "/clock", `{"advance": "61m"}`)
	mustPost(t, s, createForm).has(t, 200, "CreateVolumeResponse")
	steer(t, s, http.MethodDelete, "/faults/"+added.ID, "")
	tryToSteer(t, s, http.MethodDelete, "/faults/"+added.ID, "").has(t, http.StatusNotFound, "there is no fault")
	tryToSteer(t, s, http.MethodPost, "/faults", `{"kind": "explode"}`).has(t, http.StatusBadRequest, "explode")

	fault := read[world.Fault](t, steer(t, s, http.MethodPost, "/volume-faults", `{"kind": "create-fails", "count": 1}`))
	if fault.ID == 0 || len(s.World().Faults()) != 1 {
		t.Errorf("faults %+v", s.World().Faults())
	}
	steer(t, s, http.MethodDelete, "/volume-faults/1", "")
	if len(s.World().Faults()) != 0 {
		t.Errorf("faults %+v, want none", s.World().Faults())
	}
	tryToSteer(t, s, http.MethodDelete, "/volume-faults/x", "").has(t, http.StatusNotFound, "no volume fault")
}

func TestControl_runsInstances(t *testing.T) {
	s := newServer(t, Options{})
	made := read[instanceView](t, steer(t, s, http.MethodPost, "/instances", `{"id": "i-0123456789abcdef0", "type": "c7i.large", "interfaces": 2}`))
	if made.Type != "c7i.large" || made.Interfaces != 2 || made.State != "running" || made.Devices["/dev/xvda"].State != "attached" {
		t.Errorf("instance %+v", made)
	}
	if more := read[instanceView](t, steer(t, s, http.MethodPost, "/instances/i-0123456789abcdef0/interfaces", `{"count": 4}`)); more.Interfaces != 4 {
		t.Errorf("instance %+v, want 4 interfaces", more)
	}
	for _, step := range []struct{ change, state string }{
		{"stop", "stopped"}, {"start", "running"}, {"reboot", "running"}, {"terminate", "terminated"},
	} {
		if got := read[instanceView](t, steer(t, s, http.MethodPost, "/instances/i-0123456789abcdef0/"+step.change, "")); got.State != step.state {
			t.Errorf("%s makes it %s, want %s", step.change, got.State, step.state)
		}
	}
	tryToSteer(t, s, http.MethodPost, "/instances/i-0123456789abcdef0/explode", "").has(t, http.StatusNotFound, "want stop")
	tryToSteer(t, s, http.MethodPost, "/instances/i-0123456789abcdef9/stop", "").has(t, http.StatusNotFound, "i-0123456789abcdef9")
	tryToSteer(t, s, http.MethodPost, "/instances", `{"zone": "mars-1a"}`).has(t, http.StatusBadRequest, "mars-1a")
	if left := read[[]instanceView](t, steer(t, s, http.MethodGet, "/instances", "")); len(left) != 0 {
		t.Errorf("instances %+v, want none that is not terminated", left)
	}
}

func TestControl_sticksTransitions(t *testing.T) {
	s := newServer(t, Options{World: world.Config{Knobs: world.Knobs{Times: world.Times{Attach: world.Fixed(time.Hour)}}}})
	steer(t, s, http.MethodPost, "/instances", `{"id": "i-0123456789abcdef0"}`)
	made := mustPost(t, s, createForm).body
	_, rest, _ := strings.Cut(made, "<volumeId>")
	volume, _, _ := strings.Cut(rest, "</volumeId>")
	mustPost(t, s, "Action=AttachVolume&Version=2016-11-15&Device=/dev/sdf&InstanceId=i-0123456789abcdef0&VolumeId="+volume).has(t, 200, "attaching")
	at := `{"instance": "i-0123456789abcdef0"}`
	state := func() string { return steer(t, s, http.MethodGet, "/instances", "").body }
	steer(t, s, http.MethodPost, "/volumes/"+volume+"/stick", at)
	steer(t, s, http.MethodPost, "/clock", `{"advance": "2h"}`)
	if !strings.Contains(state(), "attaching") {
		t.Errorf("not stuck: %s", state())
	}
	steer(t, s, http.MethodPost, "/volumes/"+volume+"/unstick", at)
	steer(t, s, http.MethodPost, "/clock", `{"advance": "2h"}`)
	if strings.Contains(state(), "attaching") {
		t.Errorf("still stuck: %s", state())
	}
	steer(t, s, http.MethodPost, "/volumes/"+volume+"/impair", "")
	mustPost(t, s, "Action=DescribeVolumeStatus&Version=2016-11-15&VolumeId.1="+volume).has(t, 200, "<status>impaired</status>")
	steer(t, s, http.MethodPost, "/volumes/"+volume+"/heal", "")
	tryToSteer(t, s, http.MethodPost, "/volumes/"+volume+"/explode", "").has(t, http.StatusNotFound, "want stick")
	tryToSteer(t, s, http.MethodPost, "/clock", `{"advance": "-1s"}`).has(t, http.StatusBadRequest, "time does not go back")
	if wrong := read[[]string](t, steer(t, s, http.MethodGet, "/audit", "")); len(wrong) != 0 {
		t.Errorf("audit: %v", wrong)
	}
}

func TestControl_hasSnapshotsOfOthers(t *testing.T) {
	s := newServer(t, Options{})
	id := read[map[string]string](t, steer(t, s, http.MethodPost, "/snapshots", `{"owner": "210987654321", "size": 8, "public": true}`))["id"]
	mustPost(t, s, "Action=DescribeSnapshots&Version=2016-11-15").has(t, 200, id)
	own := mustPost(t, s, "Action=DescribeSnapshots&Version=2016-11-15&Owner.1=self")
	if strings.Contains(own.body, id) {
		t.Errorf("a foreign snapshot among one's own: %s", own.body)
	}
	tryToSteer(t, s, http.MethodPost, "/snapshots/snap-0123456789abcdef0/back-image", "").has(t, http.StatusNotFound, "snap-0123456789abcdef0")
}

func TestControl_countsAndRemembers(t *testing.T) {
	s := newServer(t, Options{})
	mustPost(t, s, createForm)
	mustPost(t, s, describeForm)
	mustPost(t, s, describeForm+"&Colour=red")
	statistics := read[Statistics](t, steer(t, s, http.MethodGet, "/statistics", ""))
	if statistics.Calls("") != 3 || statistics.Actions["DescribeVolumes"].Codes["UnknownParameter"] != 1 {
		t.Errorf("statistics %+v", statistics)
	}
	if calls := read[[]Call](t, steer(t, s, http.MethodGet, "/journal?after=1", "")); len(calls) != 2 || calls[0].Action != "DescribeVolumes" {
		t.Errorf("journal %+v", calls)
	}
	tryToSteer(t, s, http.MethodGet, "/journal?after=x", "").has(t, http.StatusBadRequest, "after=x")
	steer(t, s, http.MethodGet, "/metrics", "").has(t, 200, `ec2emu_calls_total{action="CreateVolume",code="OK"} 1`)
	steer(t, s, http.MethodDelete, "/statistics", "")
	if page := steer(t, s, http.MethodGet, "/metrics", ""); strings.Contains(page.body, "ec2emu_calls_total{") {
		t.Errorf("counters after a reset:\n%s", page.body)
	}
	steer(t, s, http.MethodGet, "/", "").has(t, 200, "POST /instances/{id}/{change}")
}
