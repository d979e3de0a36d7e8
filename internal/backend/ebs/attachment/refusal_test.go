package attachment

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// A refusal of DetachVolume is not taken for success without looking.
func TestDetach_refusalIsVerified(t *testing.T) {
	for _, code := range []string{"IncorrectState", "InvalidAttachment.NotFound", "InvalidInstanceID.NotFound"} {
		t.Run(code, func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, m *Machine) {
				mustAttach(t, m, "vol-1", "i-a")
				time.Sleep(time.Minute)
				refusals := 0
				e.refuse = func(action string, _ cloud.AttachInput) error {
					if refusals++; refusals > 2 {
						return nil
					}
					return answer(action, code, "not now")
				}
				mustDetach(t, m, "vol-1", "i-a")
				wantTruth(t, e, "vol-1", "i-a", "absent")
				wantCalls(t, e, "DetachVolume", 3)
			})
		})
	}
}

// EC2 refuses to detach a volume that was detached meanwhile. After a describe that is a
// success.
func TestDetach_doneByAnotherProcess(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		before := time.Now()
		e.detaches = 100 * time.Millisecond
		if err := e.detach("vol-1", "i-a", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		lateFor(e, before.Add(-time.Millisecond), time.Second)
		mustDetach(t, m, "vol-1", "i-a")
		wantTruth(t, e, "vol-1", "i-a", "absent")
		wantCalls(t, e, "DetachVolume", 1)
	})
}

// A missing volume or instance is ErrNotFound.
func TestAttach_missingVolumeOrInstance(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		for _, p := range []pair{{"vol-none", "i-a"}, {"vol-1", "i-none"}} {
			if _, err := m.Attach(t.Context(), p.volume, p.instance, Use{}); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("Attach(%s, %s): %v, want ErrNotFound", p.volume, p.instance, err)
			}
		}
		if e.mutations() != 0 {
			t.Errorf("%q", e.journal)
		}
	})
}

// The error for a volume at another instance names that instance, and no call changes it.
func TestAttach_attachedElsewhere(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		time.Sleep(time.Minute)
		_, err := m.Attach(t.Context(), "vol-1", "i-b", Use{})
		if !errors.Is(err, backend.ErrInUse) || !strings.Contains(err.Error(), "i-a") {
			t.Errorf("got %v, want ErrInUse that names i-a", err)
		}
		wantCalls(t, e, "AttachVolume", 1)
	})
}

func TestAttach_toAnotherNodeAfterDetach(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		mustAttach(t, m, "vol-1", "i-a")
		mustDetach(t, m, "vol-1", "i-a")
		shown := time.Now().Add(-time.Second)
		e.lag = func() time.Duration { return min(time.Since(shown), 2*time.Second) }
		mustAttach(t, m, "vol-1", "i-b")
		wantTruth(t, e, "vol-1", "i-b", "attached")
	})
}

func TestAttach_refusesWhatEC2Would(t *testing.T) {
	cases := map[string]struct {
		change func(*ec2)
		want   error
	}{
		"another zone":   {func(e *ec2) { e.instances["i-a"].Zone = "zone-b" }, backend.ErrPrecondition},
		"stopped":        {func(e *ec2) { e.instances["i-a"].State = cloud.InstanceStopped }, backend.ErrPrecondition},
		"terminated":     {func(e *ec2) { e.instances["i-a"].State = cloud.InstanceTerminated }, backend.ErrPrecondition},
		"volume error":   {func(e *ec2) { e.volumes["vol-1"].State = cloud.VolumeError }, backend.ErrPrecondition},
		"volume deleted": {func(e *ec2) { e.volumes["vol-1"].State = cloud.VolumeDeleting }, backend.ErrNotFound},
		"full": {func(e *ec2) {
			e.refuse = func(action string, _ cloud.AttachInput) error {
				return answer(action, "AttachmentLimitExceeded", "Volume attachment limit exceeded")
			}
		}, backend.ErrNoSpace},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, m *Machine) {
				c.change(e)
				begin := time.Now()
				if _, err := m.Attach(t.Context(), "vol-1", "i-a", Use{}); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if time.Since(begin) > time.Second {
					t.Errorf("took %s", time.Since(begin))
				}
				wantTruth(t, e, "vol-1", "i-a", "absent")
			})
		})
	}
}
