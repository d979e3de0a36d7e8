package attachment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// The names are those that EC2 accepts, in the usual order.
func TestNames_areThoseEC2Accepts(t *testing.T) {
	list := deviceNames()
	seen := map[string]bool{}
	for _, name := range list {
		if seen[name] {
			t.Errorf("%s twice", name)
		}
		seen[name] = true
	}
	if len(list) != 127 || list[0] != "/dev/xvdaa" || list[52] != "/dev/xvdda" || list[75] != "/dev/xvddx" || list[126] != "/dev/sda2" {
		t.Errorf("%d names: %q", len(list), list)
	}
}

func TestNames_ofAnInstanceWithoutNVMeDoNotCollideWithAliases(t *testing.T) {
	n := newNames(Options{}.withDefaults())
	for i := range 53 {
		name, _, err := n.reserve(cloud.Instance{ID: "i-a", Type: "m4.large"}, fmt.Sprint(i), 1)
		if i < 52 && (err != nil || len(name) != len("/dev/xvdaa")) {
			t.Fatalf("name %d: %q, %v", i, name, err)
		}
		if i == 52 && !errors.Is(err, backend.ErrNoSpace) {
			t.Errorf("name %d: %q, %v, want ErrNoSpace", i, name, err)
		}
	}
}

func TestNames_allOfALargeInstance(t *testing.T) {
	n := newNames(Options{}.withDefaults())
	for i := range 127 {
		if _, _, err := n.reserve(cloud.Instance{ID: "i-a", Type: "m7i.48xlarge"}, fmt.Sprint(i), 1); err != nil {
			t.Fatalf("name %d: %v", i, err)
		}
	}
}

// Used names are those that EC2 shows and those that this process has reserved.
func TestNames_usedAreNotGiven(t *testing.T) {
	n := newNames(Options{}.withDefaults())
	instance := cloud.Instance{ID: "i-a", Type: "m5.large", Devices: []cloud.InstanceDevice{{Name: "/dev/xvda"}, {Name: "/dev/xvdaa"}, {Name: "/dev/xvdac"}}}
	for _, want := range []string{"/dev/xvdab", "/dev/xvdad"} {
		if got, _, _ := n.reserve(instance, "vol-"+want, 1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNames_leastRecentlyFreedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(Options{}.withDefaults())
		instance := cloud.Instance{ID: "i-a", Type: "m4.large"}
		for _, name := range n.list[:52] {
			n.free("i-a", "", name)
			time.Sleep(time.Second)
		}
		n.free("i-a", "", n.list[0])
		if got, _, _ := n.reserve(instance, "vol-1", 1); got != n.list[1] {
			t.Errorf("got %s, want the one freed longest ago, %s", got, n.list[1])
		}
	})
}

// The record of a name expires at a fixed time, also if it is read meanwhile.
func TestNames_areForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(Options{}.withDefaults())
		instance := cloud.Instance{ID: "i-a", Type: "m5.large"}
		n.refuse("i-a", "/dev/xvdaa")
		for range 59 {
			time.Sleep(time.Minute)
			name, _, _ := n.reserve(instance, "vol-1", 1)
			if name != "/dev/xvdab" {
				t.Fatalf("got %s while /dev/xvdaa is refused", name)
			}
			n.release("i-a", name)
		}
		time.Sleep(time.Minute)
		if name, _, _ := n.reserve(instance, "vol-1", 1); name != "/dev/xvdaa" {
			t.Errorf("got %s after an hour", name)
		}
		n.extend("i-a", "/dev/xvdaa")
		time.Sleep(3 * time.Hour)
		if all := len(n.reserved.All()) + len(n.refused.All()) + len(n.freed.All()); all != 0 {
			t.Errorf("%d entries have not expired", all)
		}
	})
}

// The memory of pairs expires too.
func TestMachine_forgetsPairs(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		for i := range 20 {
			id := fmt.Sprintf("vol-%d", 100+i)
			e.addVolume(id)
			mustAttach(t, m, id, "i-a")
			mustDetach(t, m, id, "i-a")
		}
		time.Sleep(time.Hour)
		mustDetach(t, m, "vol-1", "i-a")
		if volumes := len(m.memories.All()) + len(m.operations) + len(m.claims); volumes > 1 {
			t.Errorf("%d volumes are in memory", volumes)
		}
	})
}

// An instance that was full shortly before is described again before it is called
// full.
func TestAttach_namesFreedElsewhereAreFound(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.instances["i-a"].Type = "m4.large"
		e.attaches, e.detaches = time.Second, time.Second
		for i := range 52 {
			id := fmt.Sprintf("vol-%d", 100+i)
			e.addVolume(id)
			if _, err := e.attach(cloud.AttachInput{VolumeID: id, InstanceID: "i-a", Device: m.names.list[i]}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Attach(t.Context(), "vol-1", "i-a", Use{}); !errors.Is(err, backend.ErrNoSpace) {
			t.Errorf("got %v, want ErrNoSpace", err)
		}
		time.Sleep(2 * time.Second)
		if err := e.detach("vol-107", "i-a", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if device := mustAttach(t, m, "vol-1", "i-a"); device != m.names.list[7] {
			t.Errorf("device %s, want %s", device, m.names.list[7])
		}
	})
}

// If EC2 refuses a name as used that no describe shows, the same call tries another name,
// and later calls do not use the refused one.
func TestAttach_triesAnotherNameWhenOneIsTaken(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.refuse = func(action string, in cloud.AttachInput) error {
			if in.Device < "/dev/xvdae" {
				return answer(action, "InvalidParameterValue", "Invalid value '%s' for unixDevice. Attachment point %s is already in use", in.Device, in.Device)
			}
			return nil
		}
		if device := mustAttach(t, m, "vol-1", "i-a"); device != "/dev/xvdae" {
			t.Errorf("device %s", device)
		}
		wantCalls(t, e, "AttachVolume", 5)
		e.addVolume("vol-2")
		mustAttach(t, m, "vol-2", "i-a")
		wantCalls(t, e, "AttachVolume", 6)
	})
}

func TestAttach_givesUpAfterFiveNames(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.refuse = func(action string, _ cloud.AttachInput) error { return answer(action, "InvalidDevice.InUse", "in use") }
		_, err := m.Attach(t.Context(), "vol-1", "i-a", Use{})
		for _, sentinel := range []error{backend.ErrInvalid, backend.ErrNotFound, backend.ErrInUse} {
			if err == nil || errors.Is(err, sentinel) {
				t.Errorf("got %v, want an internal error", err)
			}
		}
		wantCalls(t, e, "AttachVolume", 5)
	})
}

// A detach frees the name; a failed wait does not.
func TestNames_onlyADetachFreesOne(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.addVolume("vol-2")
		e.attaches = never
		if _, err := m.Attach(within(t, 20*time.Second), "vol-1", "i-a", Use{}); err == nil {
			t.Fatal("attached")
		}
		if reserved := m.names.reserved.All(); len(reserved) != 1 {
			t.Errorf("reserved after the failed wait: %v", reserved)
		}
		e.attaches = time.Second
		if device := mustAttach(t, m, "vol-2", "i-a"); device != "/dev/xvdab" {
			t.Errorf("device %s, want the name after that of the failed wait", device)
		}
		mustDetach(t, m, "vol-2", "i-a")
		if _, freed := m.names.freed.Get(deviceName{"i-a", "/dev/xvdab"}); !freed {
			t.Errorf("not freed by the detach")
		}
	})
}

// A name whose last use is uncertain is not given: the answer was lost, and EC2
// does not show the attachment yet.
func TestAttach_uncertainNameIsNotGiven(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.addVolume("vol-2")
		e.lose = func(string) bool { e.lose = nil; return true }
		begin := time.Now()
		e.lag = func() time.Duration { return min(time.Since(begin), 2*time.Second) }
		first := started(func() error { _, err := m.Attach(t.Context(), "vol-1", "i-a", Use{}); return err })
		time.Sleep(200 * time.Millisecond)
		if device := mustAttach(t, m, "vol-2", "i-a"); device != "/dev/xvdab" {
			t.Errorf("device %s", device)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		wantCalls(t, e, "AttachVolume", 2)
	})
}

// An attachment that is stuck is tried under another name within the call.
func TestAttach_stuckIsTriedUnderAnotherName(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.stuck = func(in cloud.AttachInput) bool { return in.Device == "/dev/xvdaa" }
		begin := time.Now()
		if device := mustAttach(t, m, "vol-1", "i-a"); device != "/dev/xvdab" {
			t.Errorf("device %s", device)
		}
		if took := time.Since(begin); took < 90*time.Second || took > 100*time.Second {
			t.Errorf("took %s", took)
		}
		wantCalls(t, e, "AttachVolume", 2)
		wantCalls(t, e, "DetachVolume", 1)
	})
}

// Callers with shorter deadlines succeed by retrying, also if the driver restarts
// before each retry.
func TestAttach_stuckWithShortDeadlines(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			inTime(t, func(t *testing.T, e *ec2, m *Machine) {
				e.stuck = func(in cloud.AttachInput) bool { return in.Device == "/dev/xvdaa" }
				for range 10 {
					if restart {
						m.Close()
						m = New(e, Options{})
					}
					_, err := m.Attach(within(t, 40*time.Second), "vol-1", "i-a", Use{})
					if err == nil {
						break
					}
					if !errors.Is(err, backend.ErrBusy) || !strings.Contains(err.Error(), "attaching to instance i-a as /dev/xvdaa since") {
						t.Errorf("got %v", err)
					}
				}
				m.Close()
				wantTruth(t, e, "vol-1", "i-a", "attached")
				if e.count("DetachVolume") != 1 {
					t.Errorf("%q", e.journal)
				}
			})
		})
	}
}

// The real name is EC2's, not the one asked for.
func TestAttach_underAnotherNameThanRequested(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		renamed := &renamer{ec2: e}
		m.cloud = renamed
		begin := time.Now()
		if device := mustAttach(t, m, "vol-1", "i-a"); device != "/dev/sdz" {
			t.Errorf("device %s, want /dev/sdz", device)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// renamer attaches everything as /dev/sdz.
type renamer struct{ *ec2 }

func (r *renamer) AttachVolume(ctx context.Context, in cloud.AttachInput) (cloud.Attachment, error) {
	in.Device = "/dev/sdz"
	a, err := r.ec2.AttachVolume(ctx, in)
	a.Device = ""
	return a, err
}

// An error that no repetition cures ends the wait.
func TestAttach_volumeDeletedWhileWaiting(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.attaches = never
		answered := started(func() error { _, err := m.Attach(t.Context(), "vol-1", "i-a", Use{}); return err })
		time.Sleep(5 * time.Second)
		e.mu.Lock()
		delete(e.volumes, "vol-1")
		e.mu.Unlock()
		begin := time.Now()
		if err := <-answered; !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestCards_leastOccupiedFirst(t *testing.T) {
	inTime(t, func(t *testing.T, e *ec2, m *Machine) {
		e.instances["i-a"].Type = "m8gb.48xlarge" // EC2 may not be asked for its cards: the table knows
		var cards []int32
		for i := range 4 {
			id := fmt.Sprintf("vol-%d", 10+i)
			e.addVolume(id)
			mustAttach(t, m, id, "i-a")
			cards = append(cards, e.volumes[id].facts[0].card)
		}
		if fmt.Sprint(cards) != "[0 1 0 1]" {
			t.Errorf("cards %v", cards)
		}
		if e.count("DescribeInstanceTypes") != 1 {
			t.Errorf("%d questions about the type", e.count("DescribeInstanceTypes"))
		}
	})
}
