package world

import (
	"strings"
	"testing"
	"time"
)

func TestModifyVolume_validates(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	n := func(v int32) *int32 { return &v }
	instance, other := newInstance(t, w, InstanceSpec{}), newInstance(t, w, InstanceSpec{})
	gp3 := newVolume(t, w)
	shared := func(kind string) string {
		return newVolume(t, w, func(r *CreateVolumeRequest) {
			r.VolumeType, r.IOPS, r.MultiAttachEnabled = kind, n(100), ptr(true)
		})
	}
	io1, io2 := shared("io1"), shared("io2")
	attach(t, w, io2, instance, "/dev/sdf")
	attach(t, w, io2, other, "/dev/sdf")
	single := newVolume(t, w, func(r *CreateVolumeRequest) { r.VolumeType, r.IOPS = "io2", n(100) })
	attach(t, w, single, instance, "/dev/sdg")
	info, err := w.DescribeInstances(&DescribeInstancesRequest{InstanceIDs: []string{instance}})
	if err != nil {
		t.Fatal(err)
	}
	root := info.Reservations[0].Instances[0].BlockDevices[0].EBS.VolumeID
	for name, c := range map[string]struct {
		r    ModifyVolumeRequest
		code string
	}{
		"nothing":                           {ModifyVolumeRequest{VolumeID: gp3}, "MissingParameter"},
		"unknown":                           {ModifyVolumeRequest{VolumeID: "vol-0123456789abcdef0", Size: n(20)}, "InvalidVolume.NotFound"},
		"smaller":                           {ModifyVolumeRequest{VolumeID: gp3, Size: n(9)}, "InvalidParameterValue"},
		"the same":                          {ModifyVolumeRequest{VolumeID: gp3, Size: n(10)}, "DryRunOperation"},
		"larger":                            {ModifyVolumeRequest{VolumeID: gp3, Size: n(20)}, "DryRunOperation"},
		"too large":                         {ModifyVolumeRequest{VolumeID: gp3, Size: n(70000)}, "InvalidParameterValue"},
		"unknown type":                      {ModifyVolumeRequest{VolumeID: gp3, VolumeType: "gp9"}, "UnknownVolumeType"},
		"a type that it is too small for":   {ModifyVolumeRequest{VolumeID: gp3, VolumeType: "st1"}, "InvalidParameterValue"},
		"iops above the ratio":              {ModifyVolumeRequest{VolumeID: gp3, IOPS: n(6000)}, "InvalidParameterValue"},
		"iops with the size they need":      {ModifyVolumeRequest{VolumeID: gp3, IOPS: n(6000), Size: n(12)}, "DryRunOperation"},
		"throughput above the ratio":        {ModifyVolumeRequest{VolumeID: gp3, Throughput: n(751)}, "InvalidParameterValue"},
		"throughput for gp2":                {ModifyVolumeRequest{VolumeID: gp3, VolumeType: "gp2", Throughput: n(125)}, "InvalidParameterCombination"},
		"io2 without iops gets 3000":        {ModifyVolumeRequest{VolumeID: gp3, VolumeType: "io2"}, "DryRunOperation"},
		"io1 without iops, too small":       {ModifyVolumeRequest{VolumeID: gp3, VolumeType: "io1"}, "InvalidParameterValue"},
		"multi-attach io1, size":            {ModifyVolumeRequest{VolumeID: io1, Size: n(20)}, "UnsupportedOperation"},
		"multi-attach io1, off":             {ModifyVolumeRequest{VolumeID: io1, MultiAttachEnabled: ptr(false)}, "UnsupportedOperation"},
		"multi-attach io2, type":            {ModifyVolumeRequest{VolumeID: io2, VolumeType: "gp3"}, "UnsupportedOperation"},
		"multi-attach io2, size":            {ModifyVolumeRequest{VolumeID: io2, Size: n(20)}, "DryRunOperation"},
		"multi-attach off with two":         {ModifyVolumeRequest{VolumeID: io2, MultiAttachEnabled: ptr(false)}, "IncorrectState"},
		"multi-attach on while attached":    {ModifyVolumeRequest{VolumeID: single, MultiAttachEnabled: ptr(true)}, "IncorrectState"},
		"multi-attach on for gp3":           {ModifyVolumeRequest{VolumeID: gp3, MultiAttachEnabled: ptr(true)}, "UnsupportedOperation"},
		"a root volume's type, not to boot": {ModifyVolumeRequest{VolumeID: root, VolumeType: "sc1", Size: n(125)}, "InvalidParameterCombination"},
	} {
		t.Run(name, func(t *testing.T) {
			c.r.DryRun = true
			_, err := w.ModifyVolume(&c.r)
			wantCode(t, err, c.code)
		})
	}
}

func TestModifyVolume_keepsWhatIsLeftOut(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	for name, c := range map[string]struct {
		from             func(*CreateVolumeRequest)
		r                ModifyVolumeRequest
		iops, throughput int32
	}{
		"size alone":         {func(r *CreateVolumeRequest) { r.IOPS, r.Throughput = n(4000), n(300) }, ModifyVolumeRequest{Size: n(20)}, 4000, 300},
		"gp2 that grows":     {func(r *CreateVolumeRequest) { r.VolumeType = "gp2" }, ModifyVolumeRequest{Size: n(1000)}, 3000, 0},
		"gp2 to gp3":         {func(r *CreateVolumeRequest) { r.VolumeType = "gp2" }, ModifyVolumeRequest{VolumeType: "gp3"}, 3000, 125},
		"gp3 to io2":         {func(r *CreateVolumeRequest) { r.IOPS = n(4000) }, ModifyVolumeRequest{VolumeType: "io2"}, 3000, 0},
		"gp3 to gp2":         {func(r *CreateVolumeRequest) { r.IOPS = n(4000) }, ModifyVolumeRequest{VolumeType: "gp2"}, 100, 0},
		"io2, throughput no": {func(r *CreateVolumeRequest) { r.VolumeType, r.IOPS = "io2", n(500) }, ModifyVolumeRequest{Size: n(20)}, 500, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, Config{Knobs: Instant()})
			c.r.VolumeID = newVolume(t, w, c.from)
			if _, err := w.ModifyVolume(&c.r); err != nil {
				t.Fatal(err)
			}
			v := describe(t, w, c.r.VolumeID)
			if v.IOPS == nil || *v.IOPS != c.iops || (v.Throughput == nil) != (c.throughput == 0) || (v.Throughput != nil && *v.Throughput != c.throughput) {
				t.Errorf("iops %v, throughput %v", v.IOPS, v.Throughput)
			}
		})
	}
}

func lastModification(t *testing.T, w *World, id string) *VolumeModification {
	t.Helper()
	answer, err := w.DescribeVolumesModifications(&DescribeVolumesModificationsRequest{Filters: []Filter{{"volume-id", []string{id}}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Modifications) == 0 {
		return nil
	}
	return &answer.Modifications[0]
}

func TestModification_life(t *testing.T) {
	devices := &recorder{}
	bubble(t, Config{Knobs: Bench(), Devices: devices}, func(t *testing.T, w *World) {
		id := newVolume(t, w)
		if lastModification(t, w, id) != nil {
			t.Error("a volume that was never modified has a modification")
		}
		_, err := w.DescribeVolumesModifications(&DescribeVolumesModificationsRequest{VolumeIDs: []string{id}})
		wantCode(t, err, "InvalidVolumeModification.NotFound")
		answer, err := w.ModifyVolume(&ModifyVolumeRequest{VolumeID: id, Size: ptr(int32(20))})
		if err != nil || answer.Modification.ModificationState != modifying || *answer.Modification.OriginalSize != 10 || *answer.Modification.TargetSize != 20 {
			t.Fatalf("%+v, %v", answer, err)
		}
		_, err = w.ModifyVolume(&ModifyVolumeRequest{VolumeID: id, Size: ptr(int32(30))})
		wantCode(t, err, "IncorrectModificationState")
		if size := describe(t, w, id).Size; size != 10 || devices.has("grow "+id) {
			t.Errorf("%d GiB while modifying", size)
		}
		time.Sleep(2 * time.Second)
		if m := lastModification(t, w, id); m.ModificationState != optimizing || describe(t, w, id).Size != 20 || !devices.has("grow "+id) {
			t.Errorf("%+v", m)
		}
		_, err = w.ModifyVolume(&ModifyVolumeRequest{VolumeID: id, Size: ptr(int32(30))})
		wantCode(t, err, "IncorrectModificationState")
		time.Sleep(150 * time.Second)
		if m := lastModification(t, w, id); *m.Progress != 50 {
			t.Errorf("progress %d", *m.Progress)
		}
		time.Sleep(150 * time.Second)
		if m := lastModification(t, w, id); m.ModificationState != completed || *m.Progress != 100 || m.EndTime.IsZero() {
			t.Errorf("%+v", m)
		}
	})
}

func TestModification_thatFailsChangesNothing(t *testing.T) {
	bubble(t, Config{Knobs: Bench()}, func(t *testing.T, w *World) {
		id := newVolume(t, w)
		if _, err := w.AddFault(Fault{Kind: ModifyFails, Count: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.ModifyVolume(&ModifyVolumeRequest{VolumeID: id, Size: ptr(int32(20))}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if m := lastModification(t, w, id); m.ModificationState != modificationFailed || m.StatusMessage == "" || describe(t, w, id).Size != 10 {
			t.Errorf("%+v", m)
		}
		if _, err := w.ModifyVolume(&ModifyVolumeRequest{VolumeID: id, Size: ptr(int32(20))}); err != nil {
			t.Error(err)
		}
	})
}

func TestCooldown(t *testing.T) {
	for rule, script := range map[string][]struct {
		wait time.Duration
		code string
	}{
		CooldownFour: {{0, ""}, {0, "IncorrectModificationState"}, {time.Hour, ""}, {time.Hour, ""}, {time.Hour, ""},
			{time.Hour, "VolumeModificationRateExceeded"}, {20*time.Hour - time.Second, "VolumeModificationRateExceeded"}, {time.Second, ""}},
		CooldownSixHours: {{0, ""}, {0, "IncorrectModificationState"}, {6*time.Hour - time.Second, "VolumeModificationRateExceeded"}, {time.Second, ""}},
		CooldownOff:      {{0, ""}, {0, "IncorrectModificationState"}, {time.Hour, ""}, {time.Hour, ""}, {time.Hour, ""}, {time.Hour, ""}, {time.Hour, ""}},
	} {
		t.Run(rule, func(t *testing.T) {
			knobs := Bench()
			knobs.Cooldown = rule
			bubble(t, Config{Knobs: knobs}, func(t *testing.T, w *World) {
				id := newVolume(t, w)
				for n, step := range script {
					time.Sleep(step.wait)
					_, err := w.ModifyVolume(&ModifyVolumeRequest{VolumeID: id, Size: ptr(int32(11 + n))})
					if codeOf(err) != step.code {
						t.Errorf("step %d: %v; want %q", n, err, step.code)
					}
					if step.code == "VolumeModificationRateExceeded" && !strings.Contains(err.Error(), "again at 2000-01-0") {
						t.Errorf("%v does not say when", err)
					}
				}
			})
		})
	}
}
