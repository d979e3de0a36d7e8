package verify_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
	ebsverify "github.com/holdfast-csi/holdfast/internal/backend/ebs/verify"
	"github.com/holdfast-csi/holdfast/internal/verify"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const (
	zone     = "us-west-2a"
	instance = "i-00000000000000001"
)

// guest is the machine of the instance, as the emulator's world has it attached.
type guest struct {
	world *world.World
	model string
	stays bool // a disk stays after its detachment
	seen  bool
}

func (g *guest) Disk(_ context.Context, id string) (serial, model string, err error) {
	for _, v := range volumes(g.world) {
		if v.VolumeID == id && len(v.Attachments) > 0 {
			g.seen = true
			return strings.Replace(id, "-", "", 1), g.model, nil
		}
	}
	if g.stays && g.seen {
		return strings.Replace(id, "-", "", 1), g.model, nil
	}
	return "", "", nil
}

// itself is the metadata service of the instance.
type itself struct{ fails bool }

func (itself) Name() string { return "imds" }

func (i itself) Instance(context.Context) (metadata.Instance, error) {
	if i.fails {
		return metadata.Instance{ID: instance, Type: "t3.nano", Zone: zone, Interfaces: 1}, nil
	}
	return metadata.Instance{ID: instance, Type: "m5.large", Region: "us-west-2", Zone: zone, ZoneID: "usw2-az1", Interfaces: 1}, nil
}

func (itself) Count(context.Context, *metadata.Instance) error { return nil }

func volumes(w *world.World) []world.Volume {
	answer, err := w.DescribeVolumes(&world.DescribeVolumesRequest{})
	if err != nil {
		panic(err)
	}
	return answer.Volumes
}

// connect makes a client as the command does.
func connect(t *testing.T, transport http.RoundTripper) *cloud.Client {
	t.Helper()
	client, err := cloud.New(t.Context(), cloud.Options{
		Endpoint: "http://ec2.test", Region: "us-west-2", Credentials: cloud.StaticCredentials("id", "secret"),
		HTTPClient: &http.Client{Transport: transport}, Lag: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// run verifies an emulated EC2 and returns the findings by ID. Nothing may be left.
func run(
	t *testing.T, o ec2emu.Options, change func(*ec2emu.Server, *ebsverify.Options), checks func(*ebsverify.Session) []verify.Check,
) map[string]verify.Finding {
	t.Helper()
	if checks == nil {
		checks = (*ebsverify.Session).Checks
	}
	emulator, err := ec2emu.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = emulator.Close() }()
	if _, err := emulator.World().RunInstance(world.InstanceSpec{ID: instance, Type: "m5.large", Zone: zone}); err != nil {
		t.Fatal(err)
	}
	client := connect(t, emulator.RoundTripper())
	defer func() { _ = client.Close() }()
	ledger := &verify.Ledger{}
	options := ebsverify.Options{
		Cloud: client, Run: "run-1", Zone: zone, InstanceID: instance, Ledger: ledger,
		Metadata: itself{}, Machine: &guest{world: emulator.World(), model: "Amazon Elastic Block Store"},
	}
	if change != nil {
		change(emulator, &options)
	}
	found, session := map[string]verify.Finding{}, ebsverify.New(options)
	verify.Run(t.Context(), checks(session), func(f verify.Finding) {
		if _, twice := found[f.ID]; twice {
			t.Errorf("two checks have the ID %s", f.ID)
		}
		found[f.ID] = f
	})
	if err := errors.Join(ledger.CleanUp(t.Context()), session.FindLost(t.Context()), ledger.CleanUp(t.Context())); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Hour) // until what is being deleted is gone
	for _, v := range volumes(emulator.World()) {
		if len(v.Attachments) == 0 { // others are the instance's own
			t.Errorf("left: volume %s, tags %v", v.VolumeID, v.Tags)
		}
	}
	left, err := emulator.World().DescribeSnapshots(&world.DescribeSnapshotsRequest{})
	if err != nil || len(left.Snapshots) > 0 {
		t.Errorf("left: snapshots %v, %v", left, err)
	}
	return found
}

func TestChecks_allHoldOnTheEmulator(t *testing.T) {
	t.Parallel()
	for name, knobs := range map[string]world.Knobs{"instant": world.Instant(), "realistic": world.Realistic()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				knobs.Encryption.UnusableKeys = []string{"*"}
				for id, f := range run(t, ec2emu.Options{World: world.Config{Knobs: knobs}}, nil, nil) {
					if f.Outcome != verify.Holds {
						t.Errorf("%s %s: %s", id, f.Outcome, f.Seen)
					}
				}
			})
		})
	}
}

// Each check runs first while EC2 answers all its calls, or the one that it is about, with an
// error that the driver does not know. A check that passes then tests nothing.
func TestChecks_eachFindsAnotherAnswer(t *testing.T) {
	t.Parallel()
	onlyThis := map[string]string{"ec2-shrink": "ModifyVolume", "ec2-device-name-taken": "AttachVolume"}
	synctest.Test(t, func(t *testing.T) {
		var emulator *ec2emu.Server
		machine, self := &guest{}, &itself{}
		knobs := world.Instant()
		knobs.Encryption.UnusableKeys = []string{"*"}
		prepare := func(server *ec2emu.Server, o *ebsverify.Options) {
			emulator = server
			machine.world, o.Machine, o.Metadata = server.World(), machine, self
		}
		spoil := func(id string) (mend func()) {
			machine.model, machine.stays, self.fails = "Foreign Disk", true, true
			fault, err := emulator.AddFault(ec2emu.Fault{Kind: ec2emu.FaultError, Action: onlyThis[id], Code: "Strange", Status: http.StatusBadRequest})
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				machine.model, machine.stays, self.fails = "Amazon Elastic Block Store", false, false
				emulator.RemoveFault(fault.ID)
			}
		}
		found := run(t, ec2emu.Options{World: world.Config{Knobs: knobs}}, prepare, func(s *ebsverify.Session) []verify.Check {
			checks := s.Checks()
			for i, check := range checks {
				checks[i].Run = func(ctx context.Context) verify.Result {
					mend := spoil(check.ID)
					if r := check.Run(ctx); r.Outcome != verify.Differs {
						t.Errorf("%s %s although EC2's answer is another: %s", check.ID, r.Outcome, r.Seen)
					}
					mend()
					return check.Run(ctx)
				}
			}
			return checks
		})
		for id, f := range found {
			if f.Outcome != verify.Holds {
				t.Errorf("%s %s: %s", id, f.Outcome, f.Seen)
			}
		}
	})
}

// Answers that are legal and not those that the driver relies on.
func TestChecks_findWhatTheDriverWouldNotBear(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		knobs   func(*world.Knobs)
		differs []string
	}{
		"describes that lag for 30 s": {func(k *world.Knobs) { k.Consistency.Visible = world.Fixed(30 * time.Second) },
			[]string{"ec2-visible-by-id"}},
		"tags that lag for 30 s": {func(k *world.Knobs) { k.Consistency.Tags = world.Fixed(30 * time.Second) },
			[]string{"ec2-visible-by-name", "ec2-snapshot-visible-by-name"}},
		"a key that can be used": {func(k *world.Knobs) { k.Encryption.UnusableKeys = nil }, []string{"ec2-unknown-key"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				knobs := world.Instant()
				knobs.Encryption.UnusableKeys = []string{"*"}
				c.knobs(&knobs)
				found := run(t, ec2emu.Options{World: world.Config{Knobs: knobs}}, nil, nil)
				for _, id := range c.differs {
					if f := found[id]; f.Outcome != verify.Differs {
						t.Errorf("%s %s: %s", id, f.Outcome, f.Seen)
					}
				}
			})
		})
	}
}

// Without a zone nothing is made, and without rights nothing is concluded.
func TestChecks_concludeNothingFromWhatTheyMayNotDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var server *ec2emu.Server
		readOnly := func(emulator *ec2emu.Server, o *ebsverify.Options) { server, o.Zone = emulator, "" }
		for id, f := range run(t, ec2emu.Options{}, readOnly, nil) {
			if f.Outcome == verify.Differs {
				t.Errorf("%s: %s", id, f.Seen)
			}
		}
		for action, calls := range server.Statistics().Actions {
			if !strings.HasPrefix(action, "Describe") && !strings.HasPrefix(action, "Delete") {
				t.Errorf("%s: %+v without a zone", action, calls)
			}
		}
		denied := ec2emu.Options{Knobs: ec2emu.Knobs{Auth: ec2emu.Auth{Denied: []string{"*"}}}}
		for id, f := range run(t, denied, nil, nil) {
			if f.Outcome != verify.Untested && id != "imds-identity" { // which asks the machine
				t.Errorf("%s %s without rights: %s", id, f.Outcome, f.Seen)
			}
		}
	})
}

// A run that was killed is cleaned up by the next one, by the tags.
func TestFind_removesWhatAKilledRunLeft(t *testing.T) {
	t.Parallel()
	every := func(string) bool { return true }
	synctest.Test(t, func(t *testing.T) {
		run(t, ec2emu.Options{}, nil, func(s *ebsverify.Session) []verify.Check {
			var made []string
			s.Ledger.Announce = func(r verify.Resource) { made = append(made, r.ID) }
			for _, check := range s.Checks() {
				switch check.ID { // up to a volume, its snapshot and its attachment
				case "ec2-create", "ec2-create-available", "ec2-snapshot", "ec2-attach":
					check.Run(t.Context())
				}
			}
			killed := made
			made = nil
			s.Ledger = &verify.Ledger{Announce: s.Ledger.Announce}
			if err := ebsverify.New(s.Options).Find(t.Context(), "", every); err != nil {
				t.Error(err)
			}
			if slices.Sort(killed); len(killed) != 2 || !slices.Equal(killed, slices.Sorted(slices.Values(made))) {
				t.Errorf("found %v, and the run that was killed had made %v", made, killed)
			}
			if err := s.Ledger.CleanUp(t.Context()); err != nil {
				t.Error(err)
			}
			return nil
		})
	})
}

// EC2 executed a creation whose answer did not arrive, and shows the volume late.
func TestFindLost_removesWhatNoAnswerNamed(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"CreateVolume", "CreateSnapshot"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				knobs := world.Instant()
				knobs.Consistency.Visible, knobs.Consistency.Actions = world.Fixed(5*time.Second), true
				var emulator *ec2emu.Server
				keep := func(server *ec2emu.Server, _ *ebsverify.Options) { emulator = server }
				run(t, ec2emu.Options{World: world.Config{Knobs: knobs}}, keep, func(s *ebsverify.Session) []verify.Check {
					client := s.Cloud
					for _, check := range s.Checks() {
						ctx, cancel := context.WithCancel(t.Context())
						if check.ID == "ec2-create" && action == "CreateVolume" || check.ID == "ec2-snapshot" && action == "CreateSnapshot" {
							s.Cloud = connect(t, ends{emulator.RoundTripper(), cancel})
						}
						switch check.ID {
						case "ec2-create", "ec2-visible-by-id", "ec2-create-available", "ec2-snapshot":
							check.Run(ctx)
						}
						if s.Cloud != client {
							_ = s.Cloud.Close()
							s.Cloud = client
						}
						cancel()
					}
					if recorded := len(s.Ledger.Resources()); recorded != map[string]int{"CreateVolume": 0, "CreateSnapshot": 1}[action] {
						t.Errorf("recorded: %+v", s.Ledger.Resources())
					}
					return nil
				})
			})
		})
	}
}

// ends executes a request and ends the caller before its answer.
type ends struct {
	http.RoundTripper
	end func()
}

func (e ends) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := e.RoundTripper.RoundTrip(r)
	if err == nil {
		_ = answer.Body.Close()
	}
	e.end()
	return nil, errors.New("the connection was closed")
}
