package world

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// moves are the allowed transitions between states of one kind of object: by
// time, and by an action. The state of a missing object is "".
type moves struct{ time, action map[string][]string }

// ended is final: the instance was terminated.
const ended = "ended"

func volumeMoves() moves {
	return moves{
		time: map[string][]string{
			creating: {available, failed, ""}, deleting: {""}, inUse: {available, deleting},
		},
		action: map[string][]string{"": {creating}, available: {inUse, deleting}, failed: {deleting}},
	}
}

func attachmentMoves() moves {
	return moves{
		time: map[string][]string{
			attaching: {attached, ended}, attached: {ended}, detaching: {busy, ""}, busy: {""},
		},
		action: map[string][]string{"": {attaching}, attaching: {detaching}, attached: {detaching}, busy: {detaching}},
	}
}

func modificationMoves() moves {
	return moves{
		time:   map[string][]string{modifying: {optimizing, modificationFailed, ended}, optimizing: {completed, ended}, completed: {ended}, modificationFailed: {ended}},
		action: map[string][]string{"": {modifying}, completed: {modifying}, modificationFailed: {modifying}},
	}
}

// allow reports whether time and at most one action lead from one state to another.
func (m moves) allow(from, to string, actions int) bool {
	if from == to || (from == ended && to == "") {
		return true
	}
	next := func(state string) bool { return m.allow(state, to, actions) }
	if slices.ContainsFunc(m.time[from], next) {
		return true
	}
	return actions > 0 && slices.ContainsFunc(m.action[from], func(state string) bool { return m.allow(state, to, actions-1) })
}

// machine runs random actions on a world and checks it after each.
type machine struct {
	t                         *rapid.T
	w                         *World
	volumes, instances, names []string
	states                    map[string]string // by kind and ID, as last seen
}

func (m *machine) pick(label string, from []string) string {
	return rapid.SampledFrom(from).Draw(m.t, label)
}

// code records an action's answer; a failure must have one of EC2's codes.
func (m *machine) code(action string, err error) {
	m.t.Helper()
	if c := codeOf(err); err != nil && (c == "InternalError" || c[0] < 'A' || c[0] > 'Z') {
		m.t.Fatalf("%s: %v", action, err)
	}
}

func (m *machine) actions() map[string]func() {
	return map[string]func(){
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
		"fault": func() {
			kinds := []FaultKind{Slow, StuckAttaching, StuckDetaching, OtherName, CreateFails, CreateVanishes, ModifyFails}
			fault := Fault{Kind: rapid.SampledFrom(kinds).Draw(m.t, "kind"), Count: 1}
			if fault.Kind == Slow {
				fault.Takes = Uniform(time.Second, time.Minute)
			}
			if _, err := m.w.AddFault(fault); err != nil {
				m.t.Fatal(err)
			}
		},
		"stop":      func() { m.code("stop", m.w.StopInstance(m.pick("instance", m.instances))) },
		"start":     func() { m.code("start", m.w.StartInstance(m.pick("instance", m.instances))) },
		"reboot":    func() { m.code("reboot", m.w.RebootInstance(m.pick("instance", m.instances))) },
		"terminate": func() { m.code("terminate", m.w.TerminateInstance(m.pick("instance", m.instances))) },
		"wait": func() {
			if err := m.w.Advance(time.Duration(rapid.IntRange(1, 1500).Draw(m.t, "ms")) * time.Millisecond); err != nil {
				m.t.Fatal(err)
			}
		},
	}
}

// weighted lists the actions, repeated by weight: those that move volumes have the highest,
// those that end instances the lowest.
func weighted() []string {
	var all []string
	for name, times := range map[string]int{
		"attach": 12, "detach": 8, "wait": 12, "modify": 4, "create": 3, "snapshot": 2, "delete": 2, "fault": 2,
		"stop": 1, "start": 2, "reboot": 1, "terminate": 1,
	} {
		all = append(all, slices.Repeat([]string{name}, times)...)
	}
	slices.Sort(all)
	return all
}

// check checks the invariants, and the transitions since the last check.
func (m *machine) check() {
	m.t.Helper()
	if wrong := m.w.Audit(); len(wrong) > 0 {
		m.t.Fatal(wrong)
	}
	now := m.seen()
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

// seen returns all states as describes show them.
func (m *machine) seen() map[string]string {
	m.t.Helper()
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
	return now
}

func (m *machine) moved(key, from, to string) {
	m.t.Helper()
	kind := volumeMoves()
	switch key[0] {
	case 'a':
		kind = attachmentMoves()
	case 'm':
		kind = modificationMoves()
	}
	if !kind.allow(from, to, 1) {
		m.t.Fatalf("%s went from %q to %q", key, from, to)
	}
}

// still is a clock that only World.Advance moves.
type still struct{}

func (still) Now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func (still) AfterFunc(time.Duration, func()) func() bool { return func() bool { return false } }

func TestModel_statesMoveAsTheyMay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		knobs := Harsh()
		knobs.Consistency = Consistency{}
		w, err := New(Config{Knobs: knobs, Seed: rapid.Uint64().Draw(rt, "seed"), Clock: still{}})
		if err != nil {
			rt.Fatal(err)
		}
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
		m.states = m.seen()
		actions := m.actions()
		for range 4 {
			actions["create"]()
			m.check()
		}
		for range rapid.IntRange(10, 150).Draw(rt, "steps") {
			actions[m.pick("action", weighted())]()
			m.check()
		}
	})
}
