package world

import (
	"testing"
	"time"
)

func snap(t *testing.T, w *World, volume string, tags ...Tag) string {
	t.Helper()
	s, err := w.CreateSnapshot(&CreateSnapshotRequest{VolumeID: volume, TagSpecifications: []TagSpecification{{"snapshot", tags}}})
	if err != nil {
		t.Fatal(err)
	}
	return s.SnapshotID
}

func describeSnapshot(t *testing.T, w *World, id string) *Snapshot {
	t.Helper()
	answer, err := w.DescribeSnapshots(&DescribeSnapshotsRequest{Filters: []Filter{{"snapshot-id", []string{id}}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Snapshots) == 0 {
		return nil
	}
	return &answer.Snapshots[0]
}

func TestSnapshot_life(t *testing.T) {
	bubble(t, Config{Knobs: Bench()}, func(t *testing.T, w *World) {
		volume := newVolume(t, w)
		begin := w.Now()
		id := snap(t, w, volume, Tag{"a", "b"})
		time.Sleep(time.Second)
		s := describeSnapshot(t, w, id)
		if s.State != pending || s.Progress != "50%" || !s.StartTime.Equal(begin) || s.VolumeSize != 10 || len(s.Tags) != 1 {
			t.Errorf("%+v", s)
		}
		_, err := w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneA, SnapshotID: id})
		wantCode(t, err, "IncorrectState")
		time.Sleep(time.Second)
		if s := describeSnapshot(t, w, id); s.State != completed || s.Progress != "100%" {
			t.Errorf("%+v", s)
		}
		restored, err := w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneB, SnapshotID: id})
		if err != nil || restored.Size != 10 || restored.SnapshotID != id {
			t.Errorf("%+v, %v", restored, err)
		}
		_, err = w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneB, SnapshotID: id, Size: ptr(int32(9))})
		wantCode(t, err, "InvalidParameterValue")
		if _, err := w.DeleteSnapshot(&DeleteSnapshotRequest{SnapshotID: id}); err != nil {
			t.Fatal(err)
		}
		_, err = w.DeleteSnapshot(&DeleteSnapshotRequest{SnapshotID: id})
		wantCode(t, err, "InvalidSnapshot.NotFound")
	})
}

func TestSnapshot_limits(t *testing.T) {
	knobs := Bench()
	knobs.Snapshots.Every = Span(15 * time.Second)
	knobs.Quotas.Snapshots = 8
	knobs.Times.Snapshot = Fixed(10 * time.Minute)
	bubble(t, Config{Knobs: knobs}, func(t *testing.T, w *World) {
		volume := newVolume(t, w)
		cold := newVolume(t, w, func(r *CreateVolumeRequest) { r.VolumeType, r.Size = "sc1", ptr(int32(125)) })
		snap(t, w, volume)
		_, err := w.CreateSnapshot(&CreateSnapshotRequest{VolumeID: volume})
		wantCode(t, err, "SnapshotCreationPerVolumeRateExceeded")
		for range 4 {
			time.Sleep(15 * time.Second)
			snap(t, w, volume)
		}
		time.Sleep(15 * time.Second)
		_, err = w.CreateSnapshot(&CreateSnapshotRequest{VolumeID: volume})
		wantCode(t, err, "ConcurrentSnapshotLimitExceeded")
		snap(t, w, cold)
		time.Sleep(15 * time.Second)
		_, err = w.CreateSnapshot(&CreateSnapshotRequest{VolumeID: cold})
		wantCode(t, err, "ConcurrentSnapshotLimitExceeded")
		snap(t, w, newVolume(t, w))
		snap(t, w, newVolume(t, w))
		_, err = w.CreateSnapshot(&CreateSnapshotRequest{VolumeID: newVolume(t, w)})
		wantCode(t, err, "SnapshotLimitExceeded")
	})
}

func TestSnapshot_thatCannotBeDeleted(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	image, locked := snap(t, w, newVolume(t, w)), snap(t, w, newVolume(t, w))
	if err := w.BackImage(image, true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.LockSnapshot(&LockSnapshotRequest{SnapshotID: locked, LockMode: "governance", LockDuration: ptr(int32(1))}); err != nil {
		t.Fatal(err)
	}
	foreign, err := w.AddForeignSnapshot("999999999999", 1, false)
	if err != nil {
		t.Fatal(err)
	}
	for id, code := range map[string]string{image: "InvalidSnapshot.InUse", locked: "SnapshotLocked", foreign: "UnauthorizedOperation", "snap-1": "InvalidSnapshotID.Malformed"} {
		_, err := w.DeleteSnapshot(&DeleteSnapshotRequest{SnapshotID: id})
		wantCode(t, err, code)
	}
}

func TestDescribeSnapshots_withoutOwnerShowsOthersToo(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	own := snap(t, w, newVolume(t, w))
	for _, owner := range []string{"amazon", "999999999999"} {
		if _, err := w.AddForeignSnapshot(owner, 8, true); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		owners []string
		count  int
	}{"all": {nil, 3}, "self": {[]string{"self"}, 1}, "amazon": {[]string{"amazon"}, 1}, "by ID": {[]string{w.Account(), "999999999999"}, 2}} {
		answer, err := w.DescribeSnapshots(&DescribeSnapshotsRequest{Owners: c.owners})
		if err != nil || len(answer.Snapshots) != c.count {
			t.Errorf("%s: %d, %v", name, len(answer.Snapshots), err)
		}
	}
	answer, err := w.DescribeSnapshots(&DescribeSnapshotsRequest{Owners: []string{"self"}})
	if err != nil || answer.Snapshots[0].SnapshotID != own {
		t.Error(answer, err)
	}
}

func TestCreateSnapshots_ofAnInstance(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	instance := newInstance(t, w, InstanceSpec{})
	first := newVolume(t, w, func(r *CreateVolumeRequest) {
		r.TagSpecifications = []TagSpecification{{"volume", []Tag{{"team", "red"}}}}
	})
	second := newVolume(t, w)
	attach(t, w, first, instance, "/dev/sdf")
	attach(t, w, second, instance, "/dev/sdg")
	spec := InstanceSpecification{InstanceID: instance, ExcludeBootVolume: true, ExcludeDataVolumeIDs: []string{second}}
	answer, err := w.CreateSnapshots(&CreateSnapshotsRequest{InstanceSpecification: spec, CopyTagsFromSource: "volume"})
	if err != nil || len(answer.Snapshots) != 1 || answer.Snapshots[0].VolumeID != first || len(answer.Snapshots[0].Tags) != 1 {
		t.Fatalf("%+v, %v", answer, err)
	}
	for name, c := range map[string]struct {
		change func(*CreateSnapshotsRequest)
		code   string
	}{
		"unknown instance": {func(r *CreateSnapshotsRequest) { r.InstanceSpecification.InstanceID = "i-0123456789abcdef0" }, "InvalidInstanceID.NotFound"},
		"unknown exclusion": {func(r *CreateSnapshotsRequest) {
			r.InstanceSpecification.ExcludeDataVolumeIDs[0] = "vol-0123456789abcdef0"
		}, "InvalidParameterValue"},
		"copied tags": {func(r *CreateSnapshotsRequest) { r.CopyTagsFromSource = "instance" }, "InvalidParameterValue"},
		"location":    {func(r *CreateSnapshotsRequest) { r.Location = "moon" }, "InvalidParameterValue"},
		"nothing left": {func(r *CreateSnapshotsRequest) {
			r.InstanceSpecification.ExcludeDataVolumeIDs = []string{first, second}
		}, "InvalidParameterCombination"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &CreateSnapshotsRequest{InstanceSpecification: InstanceSpecification{InstanceID: instance, ExcludeBootVolume: true, ExcludeDataVolumeIDs: []string{second}}}
			c.change(r)
			_, err := w.CreateSnapshots(r)
			wantCode(t, err, c.code)
		})
	}
}

func TestCopyVolumes(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	source := newVolume(t, w, func(r *CreateVolumeRequest) { r.Encrypted, r.KMSKeyID = ptr(true), "alias/mine" })
	answer, err := w.CopyVolumes(&CopyVolumesRequest{SourceVolumeID: source, ClientToken: "t", VolumeType: "gp3", Encrypted: ptr(false)})
	if err != nil {
		t.Fatal(err)
	}
	v := answer.Volumes[0]
	if v.SourceVolumeID != source || v.Size != 10 || v.AvailabilityZone != zoneA || !v.Encrypted || v.KMSKeyID != describe(t, w, source).KMSKeyID {
		t.Errorf("%+v", v)
	}
	again, err := w.CopyVolumes(&CopyVolumesRequest{SourceVolumeID: source, ClientToken: "t", VolumeType: "gp3", Encrypted: ptr(false)})
	if err != nil || again.Volumes[0].VolumeID != v.VolumeID {
		t.Error(again, err)
	}
	_, err = w.CopyVolumes(&CopyVolumesRequest{SourceVolumeID: source, Size: ptr(int32(9))})
	wantCode(t, err, "InvalidParameterValue")
	_, err = w.CopyVolumes(&CopyVolumesRequest{SourceVolumeID: "vol-0123456789abcdef0"})
	wantCode(t, err, "InvalidVolume.NotFound")
	if err := w.SetKnobs(Knobs{Encryption: Encryption{CopiesEncryptedOnly: true}}); err != nil {
		t.Fatal(err)
	}
	_, err = w.CopyVolumes(&CopyVolumesRequest{SourceVolumeID: newVolume(t, w)})
	wantCode(t, err, "UnsupportedOperation")
}

func TestCopySnapshot(t *testing.T) {
	knobs := Bench()
	knobs.Snapshots.Copies = 1
	bubble(t, Config{Knobs: knobs}, func(t *testing.T, w *World) {
		source := snap(t, w, newVolume(t, w))
		_, err := w.CopySnapshot(&CopySnapshotRequest{SourceRegion: w.Region(), SourceSnapshotID: source})
		wantCode(t, err, "IncorrectState")
		time.Sleep(time.Minute)
		copied, err := w.CopySnapshot(&CopySnapshotRequest{SourceRegion: w.Region(), SourceSnapshotID: source})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.CopySnapshot(&CopySnapshotRequest{SourceRegion: w.Region(), SourceSnapshotID: source})
		wantCode(t, err, "ResourceLimitExceeded")
		time.Sleep(time.Minute)
		if s := describeSnapshot(t, w, copied.SnapshotID); s.State != completed || s.VolumeID != "vol-ffffffff" || s.TransferType != "standard" {
			t.Errorf("%+v", s)
		}
	})
}

func TestLockSnapshot_validates(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	id := snap(t, w, newVolume(t, w))
	n := func(v int32) *int32 { return &v }
	soon, later := w.Now().Add(time.Hour), w.Now().Add(48*time.Hour)
	for name, c := range map[string]struct {
		r    LockSnapshotRequest
		code string
	}{
		"no mode":                    {LockSnapshotRequest{LockDuration: n(1)}, "MissingParameter"},
		"unknown mode":               {LockSnapshotRequest{LockMode: "strict", LockDuration: n(1)}, "InvalidParameterValue"},
		"no end":                     {LockSnapshotRequest{LockMode: "governance"}, "MissingParameter"},
		"two ends":                   {LockSnapshotRequest{LockMode: "governance", LockDuration: n(1), ExpirationDate: &later}, "InvalidParameterCombination"},
		"no days":                    {LockSnapshotRequest{LockMode: "governance", LockDuration: n(0)}, "InvalidParameterValue"},
		"most days":                  {LockSnapshotRequest{LockMode: "governance", LockDuration: n(36500)}, "DryRunOperation"},
		"more days":                  {LockSnapshotRequest{LockMode: "governance", LockDuration: n(36501)}, "InvalidParameterValue"},
		"date":                       {LockSnapshotRequest{LockMode: "governance", ExpirationDate: &later}, "DryRunOperation"},
		"date too near":              {LockSnapshotRequest{LockMode: "governance", ExpirationDate: &soon}, "InvalidParameterValue"},
		"cool-off":                   {LockSnapshotRequest{LockMode: "compliance", LockDuration: n(1), CoolOffPeriod: n(72)}, "DryRunOperation"},
		"long cool-off":              {LockSnapshotRequest{LockMode: "compliance", LockDuration: n(1), CoolOffPeriod: n(73)}, "InvalidParameterValue"},
		"cool-off outside its mode":  {LockSnapshotRequest{LockMode: "governance", LockDuration: n(1), CoolOffPeriod: n(1)}, "InvalidParameterCombination"},
		"snapshot that is not there": {LockSnapshotRequest{SnapshotID: "snap-0123456789abcdef0", LockMode: "governance", LockDuration: n(1)}, "InvalidSnapshot.NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			c.r.DryRun, c.r.SnapshotID = true, orElse(c.r.SnapshotID, id)
			_, err := w.LockSnapshot(&c.r)
			wantCode(t, err, c.code)
		})
	}
}

func TestLockSnapshot_compliance(t *testing.T) {
	bubble(t, Config{Knobs: Instant()}, func(t *testing.T, w *World) {
		id := snap(t, w, newVolume(t, w))
		lock := func(days int32, mode string, hours *int32) error {
			_, err := w.LockSnapshot(&LockSnapshotRequest{SnapshotID: id, LockMode: mode, LockDuration: &days, CoolOffPeriod: hours})
			return err
		}
		state := func() string {
			answer, err := w.DescribeLockedSnapshots(&DescribeLockedSnapshotsRequest{})
			if err != nil || len(answer.Snapshots) != 1 {
				t.Fatal(answer, err)
			}
			return answer.Snapshots[0].LockState
		}
		if err := lock(10, "compliance", ptr(int32(2))); err != nil || state() != "compliance-cooloff" {
			t.Fatal(err, state())
		}
		if err := lock(5, "compliance", ptr(int32(2))); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		if state() != "compliance" {
			t.Error(state())
		}
		wantCode(t, lock(1, "compliance", nil), "OperationNotPermitted")
		wantCode(t, lock(20, "governance", nil), "OperationNotPermitted")
		_, err := w.UnlockSnapshot(&UnlockSnapshotRequest{SnapshotID: id})
		wantCode(t, err, "OperationNotPermitted")
		if err := lock(6, "compliance", nil); err != nil {
			t.Error(err)
		}
		time.Sleep(6 * 24 * time.Hour)
		if state() != "expired" {
			t.Error(state())
		}
		if _, err := w.DeleteSnapshot(&DeleteSnapshotRequest{SnapshotID: id}); err != nil {
			t.Error(err)
		}
	})
}

func TestUnlockSnapshot(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	id := snap(t, w, newVolume(t, w))
	_, err := w.UnlockSnapshot(&UnlockSnapshotRequest{SnapshotID: id})
	wantCode(t, err, "SnapshotNotLocked")
	if _, err := w.LockSnapshot(&LockSnapshotRequest{SnapshotID: id, LockMode: "governance", LockDuration: ptr(int32(1))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.UnlockSnapshot(&UnlockSnapshotRequest{SnapshotID: id}); err != nil {
		t.Error(err)
	}
	if _, err := w.DeleteSnapshot(&DeleteSnapshotRequest{SnapshotID: id}); err != nil {
		t.Error(err)
	}
}

func TestFastRestore_life(t *testing.T) {
	knobs := Bench()
	knobs.Times.Enable, knobs.Times.Warm, knobs.Times.Initialize = Fixed(time.Second), Fixed(time.Minute), Fixed(time.Hour)
	bubble(t, Config{Knobs: knobs}, func(t *testing.T, w *World) {
		id := snap(t, w, newVolume(t, w, func(r *CreateVolumeRequest) { r.Size = ptr(int32(1024)) }))
		time.Sleep(time.Minute)
		answer, err := w.EnableFastSnapshotRestores(&EnableFastSnapshotRestoresRequest{
			AvailabilityZones: []string{zoneA, "mars-1a"}, SourceSnapshotIDs: []string{id, "snap-0123456789abcdef0"},
		})
		if err != nil || len(answer.Successful) != 1 || len(answer.Unsuccessful) != 2 {
			t.Fatalf("%+v, %v", answer, err)
		}
		state := func() string {
			answer, err := w.DescribeFastSnapshotRestores(&DescribeFastSnapshotRestoresRequest{Filters: []Filter{{"snapshot-id", []string{id}}}})
			if err != nil || len(answer.Restores) != 1 {
				return ""
			}
			return answer.Restores[0].State
		}
		restore := func() bool {
			v, err := w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneA, SnapshotID: id})
			if err != nil {
				t.Fatal(err)
			}
			return *v.FastRestored
		}
		for _, want := range []string{enabling, optimizing} {
			if state() != want {
				t.Errorf("%s; want %s", state(), want)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		// One credit an hour for 1 TiB; the bucket starts empty.
		if state() != enabled || restore() {
			t.Errorf("%s, or a credit too soon", state())
		}
		time.Sleep(time.Hour)
		if !restore() || restore() {
			t.Error("want one credit after an hour")
		}
		if _, err := w.DeleteSnapshot(&DeleteSnapshotRequest{SnapshotID: id}); err != nil {
			t.Fatal(err)
		}
		if state() != disabling {
			t.Error(state())
		}
		time.Sleep(time.Second)
		if state() != "" {
			t.Error(state())
		}
	})
}

func TestFastRestore_quota(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	var ids []string
	for range 6 {
		ids = append(ids, snap(t, w, newVolume(t, w)))
	}
	answer, err := w.EnableFastSnapshotRestores(&EnableFastSnapshotRestoresRequest{AvailabilityZones: []string{zoneA}, SourceSnapshotIDs: ids})
	if err != nil || len(answer.Successful) != 5 || len(answer.Unsuccessful) != 1 || answer.Unsuccessful[0].SnapshotID != ids[5] {
		t.Errorf("%+v, %v", answer, err)
	}
}

func TestInitialization_isShownByTheStatus(t *testing.T) {
	knobs := Bench()
	knobs.Times.Initialize = Fixed(time.Hour)
	bubble(t, Config{Knobs: knobs}, func(t *testing.T, w *World) {
		id := snap(t, w, newVolume(t, w))
		time.Sleep(time.Minute)
		restored := newVolume(t, w, func(r *CreateVolumeRequest) { r.SnapshotID = id })
		rated := newVolume(t, w, func(r *CreateVolumeRequest) { r.SnapshotID, r.VolumeInitializationRate = id, ptr(int32(100)) })
		status := func(volume string) VolumeStatusItem {
			answer, err := w.DescribeVolumeStatus(&DescribeVolumeStatusRequest{VolumeIDs: []string{volume}})
			if err != nil {
				t.Fatal(err)
			}
			return answer.Statuses[0]
		}
		s := status(restored)
		if s.Status.Details[2].Status != "initializing" || s.InitializationDetails.EstimatedSeconds != nil || s.InitializationDetails.InitializationType != "default" {
			t.Errorf("%+v", s)
		}
		if s := status(rated); s.InitializationDetails.EstimatedSeconds == nil || *s.InitializationDetails.EstimatedSeconds > 102 {
			t.Errorf("%+v", s.InitializationDetails)
		}
		time.Sleep(time.Hour)
		if s := status(restored); s.Status.Details[2].Status != "completed" || *s.InitializationDetails.Progress != 100 {
			t.Errorf("%+v", s)
		}
	})
}
