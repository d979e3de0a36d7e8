package world

import (
	"strings"
	"testing"
	"time"
)

func TestAttachVolume_validates(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	instance := newInstance(t, w, InstanceSpec{HiddenNames: []string{"/dev/sdh"}})
	other := newInstance(t, w, InstanceSpec{})
	elsewhere := newInstance(t, w, InstanceSpec{Zone: zoneB})
	gone := newInstance(t, w, InstanceSpec{})
	if err := w.TerminateInstance(gone); err != nil {
		t.Fatal(err)
	}
	free, taken := newVolume(t, w), newVolume(t, w)
	managedOne := newVolume(t, w, func(r *CreateVolumeRequest) { r.Operator = &Operator{"eks.amazonaws.com"} })
	attach(t, w, taken, other, "/dev/sdf")
	holder := newVolume(t, w)
	attach(t, w, holder, instance, "/dev/xvdba")
	for name, c := range map[string]struct {
		volume, instance, device string
		card                     *int32
		code, text               string
	}{
		"no device":             {free, instance, "", nil, "MissingParameter", "device"},
		"no volume":             {"", instance, "/dev/sdf", nil, "MissingParameter", "volumeId"},
		"no instance":           {free, "", "/dev/sdf", nil, "MissingParameter", "instanceId"},
		"malformed volume":      {"vol-x", instance, "/dev/sdf", nil, "InvalidVolumeID.Malformed", ""},
		"malformed instance":    {free, "node-1", "/dev/sdf", nil, "InvalidInstanceID.Malformed", ""},
		"unknown volume":        {"vol-0123456789abcdef0", instance, "/dev/sdf", nil, "InvalidVolume.NotFound", ""},
		"unknown instance":      {free, "i-0123456789abcdef0", "/dev/sdf", nil, "InvalidInstanceID.NotFound", ""},
		"another zone":          {free, elsewhere, "/dev/sdf", nil, "InvalidVolume.ZoneMismatch", ""},
		"terminated":            {free, gone, "/dev/sdf", nil, "IncorrectInstanceState", "terminated"},
		"attached elsewhere":    {taken, instance, "/dev/sdf", nil, "VolumeInUse", ""},
		"attached here":         {holder, instance, "/dev/sdf", nil, "VolumeInUse", instance},
		"name in use":           {free, instance, "/dev/xvdba", nil, "InvalidParameterValue", "already in use"},
		"name of the root":      {free, instance, "/dev/xvda", nil, "InvalidParameterValue", "already in use"},
		"name the image hides":  {free, instance, "/dev/sdh", nil, "InvalidParameterValue", "already in use"},
		"no such card":          {free, instance, "/dev/sdf", ptr(int32(1)), "InvalidParameterValue", "ebsCardIndex"},
		"managed by a service":  {managedOne, instance, "/dev/sdf", nil, "OperationNotPermitted", "eks"},
		"everything in order":   {free, instance, "/dev/sdf", ptr(int32(0)), "DryRunOperation", ""},
		"a name beyond sd[a-z]": {free, instance, "/dev/sdaa", nil, "InvalidParameterValue", "not a valid EBS device name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.AttachVolume(&AttachVolumeRequest{DryRun: true, VolumeID: c.volume, InstanceID: c.instance, Device: c.device, EBSCardIndex: c.card})
			wantCode(t, err, c.code)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v; want %q in it", err, c.text)
			}
		})
	}
}

func TestDeviceNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"/dev/sda": true, "/dev/sdz": true, "/dev/sda1": true, "/dev/sda2": true, "/dev/xvda": true, "/dev/xvdz": true,
		"/dev/xvdaa": true, "/dev/xvdbz": true, "/dev/xvdcz": true, "/dev/xvddx": true,
		"/dev/xvddy": false, "/dev/xvdea": false, "/dev/sdb1": false, "/dev/sda3": false, "/dev/sdaa": false, "sdf": false,
		"/dev/nvme1n1": false, "/dev/xvdba1": false, "/dev/SDF": false, "": false, "/dev/sdf ": false,
	} {
		if deviceName.MatchString(name) != valid {
			t.Errorf("%q valid = %t", name, !valid)
		}
	}
}

func TestAttachVolume_toAnInstanceThatIsNotRunning(t *testing.T) {
	bubble(t, Config{Knobs: Knobs{Times: Times{Start: Fixed(time.Second), Stop: Fixed(time.Second), Terminate: Fixed(time.Second)}}}, func(t *testing.T, w *World) {
		volume := newVolume(t, w)
		instance, err := w.RunInstance(InstanceSpec{})
		if err != nil {
			t.Fatal(err)
		}
		try := func(code string) {
			t.Helper()
			_, err := w.AttachVolume(&AttachVolumeRequest{DryRun: true, VolumeID: volume, InstanceID: instance, Device: "/dev/sdf"})
			wantCode(t, err, code)
		}
		try("IncorrectState")
		time.Sleep(time.Second)
		try("DryRunOperation")
		if err := w.StopInstance(instance); err != nil {
			t.Fatal(err)
		}
		try("IncorrectInstanceState")
		time.Sleep(time.Second)
		try("DryRunOperation")
		if err := w.TerminateInstance(instance); err != nil {
			t.Fatal(err)
		}
		try("IncorrectInstanceState")
		time.Sleep(time.Hour)
		try("InvalidInstanceID.NotFound")
	})
}

func TestAttachmentLimits(t *testing.T) {
	for name, c := range map[string]struct {
		spec InstanceSpec
		room int
	}{
		"shared with one interface":      {InstanceSpec{Type: "m5.large"}, 26},
		"shared with three":              {InstanceSpec{Type: "m5.large", Interfaces: 3}, 24},
		"with a second volume":           {InstanceSpec{Type: "m5.large", Interfaces: 2, Devices: []BootDevice{{Name: "/dev/sdb", Size: 1}}}, 24},
		"dedicated, whatever interfaces": {InstanceSpec{Type: "m7i.large", Interfaces: 3}, 31},
		"few":                            {InstanceSpec{Type: "d3.8xlarge"}, 2},
		"unknown type":                   {InstanceSpec{Type: "z9.large"}, 26},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, Config{Knobs: Instant()})
			instance := newInstance(t, w, c.spec)
			for n := range c.room {
				attach(t, w, newVolume(t, w), instance, "/dev/xvd"+string(rune('b'+n/26))+string(rune('a'+n%26)))
			}
			_, err := w.AttachVolume(&AttachVolumeRequest{VolumeID: newVolume(t, w), InstanceID: instance, Device: "/dev/xvdax"})
			wantCode(t, err, "AttachmentLimitExceeded")
		})
	}
}

func TestAttachmentLimits_thatHang(t *testing.T) {
	bubble(t, Config{Knobs: Knobs{Attach: AttachKnobs{OverLimitHangs: true}}}, func(t *testing.T, w *World) {
		instance := newInstance(t, w, InstanceSpec{Type: "d3.8xlarge"})
		attach(t, w, newVolume(t, w), instance, "/dev/sdf")
		attach(t, w, newVolume(t, w), instance, "/dev/sdg")
		extra := newVolume(t, w)
		attach(t, w, extra, instance, "/dev/sdh")
		time.Sleep(24 * time.Hour)
		if state := attachmentState(t, w, extra, instance); state != attaching {
			t.Errorf("state %s", state)
		}
	})
}

func TestStuckAttaching_endsWithADetach(t *testing.T) {
	bubble(t, Config{Knobs: Bench()}, func(t *testing.T, w *World) {
		instance, volume := newInstance(t, w, InstanceSpec{}), newVolume(t, w)
		if _, err := w.AddFault(Fault{Kind: StuckAttaching, VolumeID: volume, Count: 1}); err != nil {
			t.Fatal(err)
		}
		attach(t, w, volume, instance, "/dev/sdf")
		time.Sleep(time.Hour)
		if state := attachmentState(t, w, volume, instance); state != attaching {
			t.Fatalf("state %s", state)
		}
		detach(t, w, volume, instance, false)
		waitState(t, w, volume, available)
		attach(t, w, volume, instance, "/dev/sdf")
		waitAttachment(t, w, volume, instance, attached)
	})
}

func TestStuckDetaching_endsByForceOrStop(t *testing.T) {
	bubble(t, Config{Knobs: Bench()}, func(t *testing.T, w *World) {
		instance, volume := newInstance(t, w, InstanceSpec{}), newVolume(t, w)
		stick := func() {
			t.Helper()
			attach(t, w, volume, instance, "/dev/sdf")
			waitAttachment(t, w, volume, instance, attached)
			if _, err := w.AddFault(Fault{Kind: StuckDetaching, InstanceID: instance, Count: 1}); err != nil {
				t.Fatal(err)
			}
			detach(t, w, volume, instance, false)
			time.Sleep(time.Hour)
			if state := attachmentState(t, w, volume, instance); state != detaching {
				t.Fatalf("state %s", state)
			}
			_, err := w.DetachVolume(&DetachVolumeRequest{VolumeID: volume, InstanceID: instance})
			wantCode(t, err, "IncorrectState")
		}
		stick()
		if err := w.StopInstance(instance); err != nil {
			t.Fatal(err)
		}
		waitState(t, w, volume, available)
		if err := w.StartInstance(instance); err != nil {
			t.Fatal(err)
		}
		stick()
		detach(t, w, volume, instance, true)
		waitState(t, w, volume, available)
		// The guest may still have the name.
		_, err := w.AttachVolume(&AttachVolumeRequest{VolumeID: volume, InstanceID: instance, Device: "/dev/sdf"})
		wantCode(t, err, "InvalidParameterValue")
		if err := w.RebootInstance(instance); err != nil {
			t.Fatal(err)
		}
		attach(t, w, volume, instance, "/dev/sdf")
	})
}

func TestBusy_untilTheGuestLetsGo(t *testing.T) {
	devices := &recorder{}
	bubble(t, Config{Knobs: Bench(), Devices: devices}, func(t *testing.T, w *World) {
		instance, volume := newInstance(t, w, InstanceSpec{}), newVolume(t, w)
		attach(t, w, volume, instance, "/dev/sdf")
		waitAttachment(t, w, volume, instance, attached)
		devices.setBusy(true)
		detach(t, w, volume, instance, false)
		waitAttachment(t, w, volume, instance, busy)
		answer, err := w.DescribeInstances(&DescribeInstancesRequest{InstanceIDs: []string{instance}})
		if err != nil {
			t.Fatal(err)
		}
		if status := answer.Reservations[0].Instances[0].BlockDevices[1].EBS.Status; status != detaching {
			t.Errorf("the instance shows %s", status)
		}
		devices.setBusy(false)
		waitState(t, w, volume, available)
		if !devices.has("detach " + volume) {
			t.Error("the device is still there")
		}
	})
}

func TestOtherName_isShownByDescribes(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	instance, volume := newInstance(t, w, InstanceSpec{}), newVolume(t, w)
	if _, err := w.AddFault(Fault{Kind: OtherName}); err != nil {
		t.Fatal(err)
	}
	attach(t, w, volume, instance, "/dev/sdf")
	if name := describe(t, w, volume).Attachments[0].Device; name == "/dev/sdf" || !deviceName.MatchString(name) {
		t.Errorf("name %q", name)
	}
	detach(t, w, volume, instance, false)
}

func TestXen_namesOfBothKindsAreOne(t *testing.T) {
	bubble(t, Config{Knobs: Knobs{Attach: AttachKnobs{NameRest: Span(time.Minute)}}}, func(t *testing.T, w *World) {
		instance, first, second := newInstance(t, w, InstanceSpec{Type: "m4.large"}), newVolume(t, w), newVolume(t, w)
		attach(t, w, first, instance, "/dev/sdf")
		_, err := w.AttachVolume(&AttachVolumeRequest{VolumeID: second, InstanceID: instance, Device: "/dev/xvdf"})
		wantCode(t, err, "InvalidParameterValue")
		detach(t, w, first, instance, false)
		// Too soon after: the guest still uses the name.
		attach(t, w, second, instance, "/dev/sdf")
		time.Sleep(time.Hour)
		if state := attachmentState(t, w, second, instance); state != attaching {
			t.Errorf("state %s", state)
		}
	})
}

func TestMultiAttach(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	shared := func(kind string) string {
		return newVolume(t, w, func(r *CreateVolumeRequest) {
			r.VolumeType, r.IOPS, r.MultiAttachEnabled = kind, ptr(int32(100)), ptr(true)
		})
	}
	io2, io1 := shared("io2"), shared("io1")
	plain, another, express, xen := newInstance(t, w, InstanceSpec{}), newInstance(t, w, InstanceSpec{}),
		newInstance(t, w, InstanceSpec{Type: "m7i.large"}), newInstance(t, w, InstanceSpec{Type: "m4.large"})
	try := func(volume, instance, code string) {
		t.Helper()
		_, err := w.AttachVolume(&AttachVolumeRequest{VolumeID: volume, InstanceID: instance, Device: "/dev/sdz"})
		if code == "" && err != nil || codeOf(err) != code {
			t.Errorf("%s to %s: %v; want %q", volume, instance, err, code)
		}
	}
	io2Name, io1Name := "/dev/sdf", "/dev/sdg"
	attach(t, w, io2, plain, io2Name)
	attach(t, w, io2, another, io2Name)
	attach(t, w, io1, plain, io1Name)
	try(io2, plain, "VolumeInUse")
	try(io2, express, "UnsupportedOperation")
	try(io1, express, "UnsupportedOperation")
	try(io2, xen, "UnsupportedOperation")
	_, err := w.DetachVolume(&DetachVolumeRequest{VolumeID: io2})
	wantCode(t, err, "MissingParameter")
	detach(t, w, io2, plain, false)
	if v := describe(t, w, io2); v.State != inUse || len(v.Attachments) != 1 {
		t.Errorf("%s with %d attachments", v.State, len(v.Attachments))
	}
	for range 15 {
		attach(t, w, io2, newInstance(t, w, InstanceSpec{}), io2Name)
	}
	_, err = w.AttachVolume(&AttachVolumeRequest{VolumeID: io2, InstanceID: plain, Device: io2Name})
	wantCode(t, err, "AttachmentLimitExceeded")
}

func TestMultiAttach_ofIO1IsNotEverywhere(t *testing.T) {
	w := start(t, Config{Region: "eu-central-1"})
	_, err := w.CreateVolume(&CreateVolumeRequest{
		AvailabilityZone: "eu-central-1a", VolumeType: "io1", Size: ptr(int32(10)), IOPS: ptr(int32(100)), MultiAttachEnabled: ptr(true),
	})
	wantCode(t, err, "UnsupportedOperation")
}

func TestDetachVolume_validates(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	instance, other := newInstance(t, w, InstanceSpec{}), newInstance(t, w, InstanceSpec{})
	free, taken := newVolume(t, w), newVolume(t, w)
	attach(t, w, taken, instance, "/dev/sdf")
	info, err := w.DescribeInstances(&DescribeInstancesRequest{InstanceIDs: []string{instance}})
	if err != nil {
		t.Fatal(err)
	}
	root := info.Reservations[0].Instances[0].BlockDevices[0].EBS.VolumeID
	for name, c := range map[string]struct {
		r    DetachVolumeRequest
		code string
	}{
		"no volume":             {DetachVolumeRequest{}, "MissingParameter"},
		"unknown volume":        {DetachVolumeRequest{VolumeID: "vol-0123456789abcdef0"}, "InvalidVolume.NotFound"},
		"unknown instance":      {DetachVolumeRequest{VolumeID: taken, InstanceID: "i-0123456789abcdef0"}, "InvalidInstanceID.NotFound"},
		"malformed instance":    {DetachVolumeRequest{VolumeID: taken, InstanceID: "node"}, "InvalidInstanceID.Malformed"},
		"attached nowhere":      {DetachVolumeRequest{VolumeID: free, InstanceID: instance}, "IncorrectState"},
		"attached elsewhere":    {DetachVolumeRequest{VolumeID: taken, InstanceID: other}, "InvalidAttachment.NotFound"},
		"another name":          {DetachVolumeRequest{VolumeID: taken, Device: "/dev/sdg"}, "InvalidAttachment.NotFound"},
		"the root volume":       {DetachVolumeRequest{VolumeID: root, InstanceID: instance}, "OperationNotPermitted"},
		"its name, no instance": {DetachVolumeRequest{VolumeID: taken, Device: "/dev/sdf"}, "DryRunOperation"},
	} {
		t.Run(name, func(t *testing.T) {
			c.r.DryRun = true
			_, err := w.DetachVolume(&c.r)
			wantCode(t, err, c.code)
		})
	}
}

func TestTerminateInstance_letsVolumesGo(t *testing.T) {
	bubble(t, Config{Knobs: Bench()}, func(t *testing.T, w *World) {
		instance := newInstance(t, w, InstanceSpec{Devices: []BootDevice{{Name: "/dev/sdb", Size: 1}, {Name: "/dev/sdc", Size: 1, Keep: true}}})
		volume := newVolume(t, w)
		attach(t, w, volume, instance, "/dev/sdf")
		if err := w.TerminateInstance(instance); err != nil {
			t.Fatal(err)
		}
		waitState(t, w, volume, available)
		all, err := w.DescribeVolumes(&DescribeVolumesRequest{})
		if err != nil || len(all.Volumes) != 2 {
			t.Errorf("%d volumes are left, %v", len(all.Volumes), err)
		}
		answer, err := w.DescribeInstances(&DescribeInstancesRequest{InstanceIDs: []string{instance}})
		if err != nil || answer.Reservations[0].Instances[0].State.Name != terminated {
			t.Errorf("%v, %v", answer, err)
		}
		time.Sleep(time.Hour)
		_, err = w.DescribeInstances(&DescribeInstancesRequest{InstanceIDs: []string{instance}})
		wantCode(t, err, "InvalidInstanceID.NotFound")
	})
}

func TestAttached_onlyWithItsDevice(t *testing.T) {
	devices := &recorder{}
	bubble(t, Config{Knobs: Bench(), Devices: devices}, func(t *testing.T, w *World) {
		instance, volume := newInstance(t, w, InstanceSpec{}), newVolume(t, w)
		devices.fails = 3
		attach(t, w, volume, instance, "/dev/sdf")
		time.Sleep(2500 * time.Millisecond)
		if state := attachmentState(t, w, volume, instance); state != attaching {
			t.Errorf("state %s without a device", state)
		}
		time.Sleep(time.Second)
		if state := attachmentState(t, w, volume, instance); state != attached || !devices.has("attach "+volume) {
			t.Errorf("state %s", state)
		}
	})
}
