package ebs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// The controller dies at each call that it makes, before EC2 has the call and after EC2
// has done it. Another process without its memory gets the same RPC at once or half a
// minute later. The outcome is the same as without a death, and every change is made
// once.
func TestRecovery_ofAControllerThatDiesAtAnyCall(t *testing.T) {
	t.Parallel()
	for _, work := range recoveries() {
		t.Run(work.name, func(t *testing.T) {
			calls, want := work.undisturbed(t, usual())
			for _, must := range work.through {
				if !slices.Contains(calls, must) {
					t.Errorf("the work is %q; want %s in it", calls, must)
				}
			}
			for i, action := range calls {
				for _, d := range []death{{call: i}, {call: i, after: true}, {call: i, after: true, later: 30 * time.Second}} {
					t.Run(fmt.Sprintf("%d %s %s", i+1, action, d), func(t *testing.T) { work.dies(t, usual(), d, want) })
				}
			}
		})
	}
}

// The same if EC2 shows new resources late and sometimes an earlier state. Some calls may
// then be repeated without an effect, but the outcome is the same.
func TestRecovery_whileEC2LagsBehind(t *testing.T) {
	t.Parallel()
	lagging := usual()
	lagging.World.Knobs.Consistency = world.Consistency{Visible: world.Uniform(0, 2*time.Second), Tags: world.Uniform(0, 2*time.Second), StaleOneIn: 4}
	for _, work := range recoveries() {
		t.Run(work.name, func(t *testing.T) {
			calls, want := work.undisturbed(t, lagging)
			want.changes = nil
			for i, action := range calls {
				for _, d := range []death{{call: i}, {call: i, after: true}} {
					t.Run(fmt.Sprintf("%d %s %s", i+1, action, d), func(t *testing.T) { work.dies(t, lagging, d, want) })
				}
			}
		})
	}
}

// recovery is an RPC in which a process may die.
type recovery struct {
	name string
	// prepare makes what the RPC needs; do is the RPC.
	prepare func(s *stage, p process, on *objects)
	do      func(ctx context.Context, p process, on *objects) error
	// through are actions that the RPC must call; otherwise the test would not cover
	// them.
	through []string
}

// objects are the IDs that a recovery works on.
type objects struct{ volume, instance, snapshot string }

// outcome is what EC2 has in the end, in words, and the changes that were made.
type outcome struct {
	state   []string
	changes []string
}

// death is when a process dies: at which of its calls, and whether EC2 did that;
// and how much later the next one begins.
type death struct {
	call  int
	after bool
	later time.Duration
}

func (d death) String() string {
	text := "before"
	if d.after {
		text = "after"
	}
	if d.later > 0 {
		text += ", found later"
	}
	return text
}

// undisturbed does the work in one go: the calls it makes, and the outcome.
func (r recovery) undisturbed(t *testing.T, o ec2emu.Options) (calls []string, out outcome) {
	t.Helper()
	staged(t, o, func(s *stage) {
		on, line := r.prepared(s), &lifeline{RoundTripper: s.emu.RoundTripper()}
		p, _ := s.over(line)
		line.arm(death{call: -1}, nil)
		s.must(r.do(s.Context(), p, on))
		calls, out = line.calls, s.outcome()
	})
	return calls, out
}

// dies does the work with a process that dies, and with the next one.
func (r recovery) dies(t *testing.T, o ec2emu.Options, d death, want outcome) {
	t.Helper()
	staged(t, o, func(s *stage) {
		on, line := r.prepared(s), &lifeline{RoundTripper: s.emu.RoundTripper()}
		doomed, client := s.over(line)
		ctx, die := context.WithCancel(s.Context())
		defer die()
		line.arm(d, die)
		if err := r.do(ctx, doomed, on); err == nil && line.isCut() {
			s.Error("the process died and answered")
		}
		s.must(client.Close())
		time.Sleep(d.later)
		next, _ := s.over(s.emu.RoundTripper())
		for range 2 {
			s.must(within(s.Context(), time.Minute, func(ctx context.Context) error { return r.do(ctx, next, on) }))
		}
		got := s.outcome()
		if !slices.Equal(got.state, want.state) {
			s.Errorf("EC2 has\n%s\nwant\n%s", strings.Join(got.state, "\n"), strings.Join(want.state, "\n"))
		}
		if want.changes != nil && !slices.Equal(got.changes, want.changes) {
			s.Errorf("changes were %q; want %q", got.changes, want.changes)
		}
		for _, wrong := range s.emu.World().Audit() {
			s.Error(wrong)
		}
	})
}

// prepared is a stage on which the preparations have been made.
func (r recovery) prepared(s *stage) *objects {
	s.Helper()
	on := &objects{}
	id, err := s.emu.World().RunInstance(world.InstanceSpec{Type: "m5.large", Zone: testZone})
	s.must(err)
	on.instance = id
	time.Sleep(time.Minute)
	r.prepare(s, s.start(Options{}), on)
	time.Sleep(10 * time.Minute)
	s.emu.Reset()
	return on
}

// over starts a process with a separate connection to EC2.
func (s *stage) over(way http.RoundTripper) (process, *cloud.Client) {
	s.Helper()
	client, err := cloud.New(s.Context(), cloud.Options{
		Region: "us-west-2", Credentials: cloud.StaticCredentials("id", "secret"), HTTPClient: &http.Client{Transport: way},
	})
	s.must(err)
	s.Cleanup(func() { s.must(client.Close()) })
	c, err := New(Options{Cloud: client})
	s.must(err)
	time.Sleep(time.Second) // its start-up check passes
	return process{guard.New(c), c}, client
}

// lifeline is the connection of a process to EC2, which ends when the process dies.
type lifeline struct {
	http.RoundTripper
	mu       sync.Mutex
	armed    bool
	at       death
	die      func()
	snapshot bool
	calls    []string
}

var errCut = errors.New("this process is dead")

// arm counts calls from now on.
func (l *lifeline) arm(at death, die func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed, l.at, l.die = true, at, die
}

func (l *lifeline) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.snapshot
}

// RoundTrip implements http.RoundTripper.
func (l *lifeline) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	ends, dead := l.note(form.Get("Action"))
	switch {
	case dead || ends && !l.at.after:
	case ends:
		// EC2 does it even if the caller no longer waits for the answer.
		if answer, err := l.RoundTripper.RoundTrip(r.WithContext(context.WithoutCancel(r.Context()))); err == nil {
			_ = answer.Body.Close()
		}
	default:
		return l.RoundTripper.RoundTrip(r)
	}
	if ends {
		l.die()
	}
	return nil, errCut
}

// note counts a call. ends reports that the process dies at it, dead that it has died
// before.
func (l *lifeline) note(action string) (ends, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.armed || l.snapshot {
		return false, l.snapshot
	}
	l.calls = append(l.calls, action)
	l.snapshot = len(l.calls) == l.at.call+1
	return l.snapshot, false
}

// outcome is what EC2 has, without what differs from run to run.
func (s *stage) outcome() outcome {
	s.Helper()
	var out outcome
	for _, v := range s.inEC2() {
		text := fmt.Sprintf("volume %s: %d GiB %s, %d IOPS, %s, source %t", tagsOf(v.Tags), v.Size, v.VolumeType, deref(v.IOPS), v.State, v.SnapshotID+v.SourceVolumeID != "")
		for _, a := range v.Attachments {
			text += fmt.Sprintf(", %s as %s", a.State, a.Device)
		}
		out.state = append(out.state, text)
	}
	locks, err := s.emu.World().DescribeLockedSnapshots(&world.DescribeLockedSnapshotsRequest{})
	s.must(err)
	restores, err := s.emu.World().DescribeFastSnapshotRestores(&world.DescribeFastSnapshotRestoresRequest{})
	s.must(err)
	for _, snapshot := range s.snapshotsInEC2() {
		out.state = append(out.state, fmt.Sprintf("snapshot %s: %s, %d locks, %d fast restores", tagsOf(snapshot.Tags), snapshot.State, len(locks.Snapshots), len(restores.Restores)))
	}
	slices.Sort(out.state)
	out.changes = s.changes()
	return out
}

// changes are the actions that changed something since the last reset. What the
// client token answers a second time was one change, and so are tags that are
// there already.
func (s *stage) changes() []string {
	var changes []string
	for _, call := range s.emu.Journal(0) {
		if strings.HasPrefix(call.Action, "Describe") || call.Code != ec2emu.CodeOK {
			continue
		}
		switch call.Action {
		case "CreateVolume", "CopyVolumes", "CreateTags", "DeleteTags":
			if slices.Contains(changes, call.Action) {
				continue
			}
		}
		changes = append(changes, call.Action)
	}
	slices.Sort(changes)
	return changes
}

func tagsOf(tags []world.TagItem) string {
	var pairs []string
	for _, t := range tags {
		if !strings.HasPrefix(t.Key, "ebs.csi.aws.com/request") {
			pairs = append(pairs, t.Key+"="+t.Value)
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, " ")
}

func deref(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}
