package world

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// mayFollow is what can come after each state of a volume, an attachment and a
// modification, as a describe sees it: one between two looks may be skipped.
var (
	volumeFollows = map[string][]string{
		"": {creating}, creating: {available, failed, ""}, available: {inUse, deleting, ""},
		inUse: {available}, deleting: {""}, failed: {deleting, ""},
	}
	attachmentFollows = map[string][]string{
		"": {attaching}, attaching: {attached, detaching}, attached: {detaching, ""}, detaching: {busy, ""}, busy: {detaching, ""},
	}
	modificationFollows = map[string][]string{
		"": {modifying}, modifying: {optimizing, modificationFailed}, optimizing: {completed},
		completed: {modifying}, modificationFailed: {modifying},
	}
)

// reachable tells whether steps lead from one state to another without
// anything being done in between but the passing of time.
func reachable(follows map[string][]string, from, to string, steps int) bool {
	if from == to {
		return true
	}
	return steps > 0 && slices.ContainsFunc(follows[from], func(next string) bool { return reachable(follows, next, to, steps-1) })
}

// machine does random things to a world and looks at it after each.
type machine struct {
	t                         *rapid.T
	w                         *World
	volumes, instances, names []string
	states                    map[string]string // by kind and ID, as last seen
}

func (m *machine) pick(label string, from []string) string {
	return rapid.SampledFrom(from).Draw(m.t, label)
}

// code notes what an action answered; a failure must be one of EC2's.
func (m *machine) code(action string, err error) {
	m.t.Helper()
	if c := codeOf(err); err != nil && (c == "InternalError" || c[0] < 'A' || c[0] > 'Z') {
		m.t.Fatalf("%s: %v", action, err)
	}
}

func (m *machine) actions() map[string]func(*rapid.T) {
	actions := map[string]func(){
		"create": func() {
			r := &CreateVolumeRequest{AvailabilityZone: m.pick("zone", []string{zoneA, zoneA, zoneB}), VolumeType: "gp3", Size: ptr(int32(4))}
			if rapid.Bool().Draw(m.t, "shared") {
				r.VolumeType, r.IOPS, r.MultiAttachEnabled = "io2", ptr(int32(100)), ptr(true)
			}
			v, err := m.w.CreateVolume(r)
			if err != nil {
				m.t.Fatal(err)
			}
			m.volumes = append(m.volumes, v.VolumeID)
		},
		"attach": func() {
			_, err := m.w.AttachVolume(&AttachVolumeRequest{VolumeID: m.pick("volume", m.volumes), InstanceID: m.pick("instance", m.instances), Device: m.pick("name", m.names)})
			m.code("attach", err)
		},
		"detach": func() {
			_, err := m.w.DetachVolume(&DetachVolumeRequest{VolumeID: m.pick("volume", m.volumes), InstanceID: m.pick("instance", m.instances), Force: rapid.Bool().Draw(m.t, "force")})
			m.code("detach", err)
		},
		"delete": func() {
			_, err := m.w.DeleteVolume(&DeleteVolumeRequest{VolumeID: m.pick("volume", m.volumes)})
			m.code("delete", err)
		},
		"modify": func() {
			_, err := m.w.ModifyVolume(&ModifyVolumeRequest{VolumeID: m.pick("volume", m.volumes), Size: ptr(rapid.Int32Range(4, 40).Draw(m.t, "size"))})
			m.code("modify", err)
		},
		"snapshot": func() {
			_, err := m.w.CreateSnapshot(&CreateSnapshotRequest{VolumeID: m.pick("volume", m.volumes)})
			m.code("snapshot", err)
		},
		"mishap": func() {
			kinds := []MishapKind{StuckAttaching, StuckDetaching, OtherName, CreateFails, CreateVanishes, ModifyFails}
			if _, err := m.w.AddMishap(Mishap{Kind: rapid.SampledFrom(kinds).Draw(m.t, "kind"), Count: 1}); err != nil {
				m.t.Fatal(err)
			}
		},
		"stop":      func() { m.code("stop", m.w.StopInstance(m.pick("instance", m.instances))) },
		"start":     func() { m.code("start", m.w.StartInstance(m.pick("instance", m.instances))) },
		"reboot":    func() { m.code("reboot", m.w.RebootInstance(m.pick("instance", m.instances))) },
		"terminate": func() { m.code("terminate", m.w.TerminateInstance(m.pick("instance", m.instances))) },
		"wait":      func() { time.Sleep(time.Duration(rapid.IntRange(1, 3000).Draw(m.t, "ms")) * time.Millisecond) },
	}
	drawn := map[string]func(*rapid.T){}
	for name, do := range actions {
		drawn[name] = func(t *rapid.T) {
			m.t = t
			do()
			m.look()
		}
	}
	return drawn
}

// look checks what must never be, and how states have moved since last time.
func (m *machine) look() {
	m.t.Helper()
	if wrong := m.w.Audit(); len(wrong) > 0 {
		m.t.Fatal(wrong)
	}
	answer, err := m.w.DescribeVolumes(&DescribeVolumesRequest{})
	if err != nil {
		m.t.Fatal(err)
	}
	now := map[string]string{}
	for _, v := range answer.Volumes {
		now["volume "+v.VolumeID] = v.State
		for _, a := range v.Attachments {
			now["attachment "+v.VolumeID+" "+a.InstanceID] = a.State
		}
	}
	modifications, err := m.w.DescribeVolumesModifications(&DescribeVolumesModificationsRequest{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, one := range modifications.Modifications {
		now["modification "+one.VolumeID] = one.ModificationState
	}
	for key := range m.states {
		if _, still := now[key]; !still {
			now[key] = ""
		}
	}
	for key, state := range now {
		m.moved(key, m.states[key], state)
		m.states[key] = state
	}
}

func (m *machine) moved(key, from, to string) {
	m.t.Helper()
	follows := volumeFollows
	switch key[0] {
	case 'a':
		follows = attachmentFollows
	case 'm':
		if to == "" { // with its volume
			return
		}
		follows = modificationFollows
	}
	if !reachable(follows, from, to, 4) {
		m.t.Fatalf("%s went from %q to %q", key, from, to)
	}
}

func TestModel_statesMoveAsTheyMay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		failure := any(nil)
		synctest.Test(t, func(*testing.T) {
			// A failed draw unwinds by a panic that the outer run must get.
			defer func() { failure = recover() }()
			play(rt, seed)
		})
		if failure != nil {
			panic(failure)
		}
	})
}

func play(rt *rapid.T, seed uint64) {
	knobs := Harsh()
	knobs.Consistency = Consistency{}
	w, err := New(Config{Knobs: knobs, Seed: seed})
	if err != nil {
		rt.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	m := &machine{t: rt, w: w, states: map[string]string{}}
	for n := range 5 {
		m.names = append(m.names, fmt.Sprintf("/dev/xvdb%c", 'a'+n))
	}
	for range 3 {
		id, err := w.RunInstance(InstanceSpec{HiddenNames: m.names[:1]})
		if err != nil {
			rt.Fatal(err)
		}
		m.instances = append(m.instances, id)
	}
	actions := m.actions()
	actions["create"](rt)
	m.states = map[string]string{}
	rt.Repeat(actions)
}
