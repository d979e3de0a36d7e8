package world

import (
	"testing"
	"time"
)

func TestLife_ofAVolumeInVirtualTime(t *testing.T) {
	bubble(t, Config{Knobs: Bench()}, func(t *testing.T, w *World) {
		instance := newInstance(t, w, InstanceSpec{})
		begin := w.Now()
		volume := newVolume(t, w)
		if took := w.Now().Sub(begin); took != 1500*time.Millisecond {
			t.Errorf("creating took %v", took)
		}
		attach(t, w, volume, instance, "/dev/xvdba")
		if v := describe(t, w, volume); v.State != inUse || v.Attachments[0].State != attaching {
			t.Errorf("just attached: %s, %s", v.State, v.Attachments[0].State)
		}
		waitAttachment(t, w, volume, instance, attached)
		answer, err := w.DescribeInstances(&DescribeInstancesRequest{InstanceIDs: []string{instance}})
		if err != nil {
			t.Fatal(err)
		}
		devices := answer.Reservations[0].Instances[0].BlockDevices
		if len(devices) != 2 || devices[1].DeviceName != "/dev/xvdba" || devices[1].EBS.VolumeID != volume {
			t.Errorf("block devices %+v", devices)
		}
		_, err = w.DeleteVolume(&DeleteVolumeRequest{VolumeID: volume})
		wantCode(t, err, "VolumeInUse")
		detach(t, w, volume, instance, false)
		if state := attachmentState(t, w, volume, instance); state != detaching {
			t.Errorf("just detached: %s", state)
		}
		waitState(t, w, volume, available)
		if _, err := w.DeleteVolume(&DeleteVolumeRequest{VolumeID: volume}); err != nil {
			t.Fatal(err)
		}
		if describe(t, w, volume) != nil {
			t.Error("it is still there")
		}
		_, err = w.DescribeVolumes(&DescribeVolumesRequest{VolumeIDs: []string{volume}})
		wantCode(t, err, "InvalidVolume.NotFound")
	})
}

// A slow transition takes the fault's time, and those after it their own.
func TestSlow_prolongsTheTransitionsThatItHits(t *testing.T) {
	bubble(t, Config{Knobs: Bench()}, func(t *testing.T, w *World) {
		instance := newInstance(t, w, InstanceSpec{})
		begin := w.Now()
		for _, kind := range []Transition{CreateTransition, AttachTransition} {
			if _, err := w.AddFault(Fault{Kind: Slow, Transition: kind, Takes: Fixed(30 * time.Second), Count: 1}); err != nil {
				t.Fatal(err)
			}
		}
		first := newVolume(t, w)
		attach(t, w, first, instance, "/dev/xvdba")
		waitAttachment(t, w, first, instance, attached)
		if took := w.Ended(AttachTransition, first).Sub(begin); took < time.Minute || took > 61*time.Second {
			t.Errorf("creating and attaching took %v", took)
		}
		begin = w.Now()
		second := newVolume(t, w)
		attach(t, w, second, instance, "/dev/xvdbb")
		waitAttachment(t, w, second, instance, attached)
		if took := w.Ended(AttachTransition, second).Sub(begin); took != 3500*time.Millisecond {
			t.Errorf("the next took %v", took)
		}
	})
	w := start(t, Config{})
	for _, wrong := range []Fault{{Kind: Slow, Transition: "delete"}, {Kind: OtherName, Takes: Fixed(time.Second)}} {
		if _, err := w.AddFault(wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

// No call comes in between: the timer applies the transitions that are due.
func TestTimer_appliesTransitionsWithoutACall(t *testing.T) {
	devices := &recorder{}
	bubble(t, Config{Knobs: Bench(), Devices: devices}, func(t *testing.T, w *World) {
		instance := newInstance(t, w, InstanceSpec{})
		volume := newVolume(t, w)
		attach(t, w, volume, instance, "/dev/xvdba")
		time.Sleep(1999 * time.Millisecond)
		if devices.has("attach " + volume) {
			t.Error("the device is there before the attachment is attached")
		}
		time.Sleep(2 * time.Millisecond)
		if !devices.has("attach " + volume) {
			t.Error("the device is not there")
		}
	})
}

func TestAdvance_bringsWhatIsDue(t *testing.T) {
	w := start(t, Config{Knobs: Bench()})
	v, err := w.CreateVolume(&CreateVolumeRequest{AvailabilityZone: zoneA, Size: ptr(int32(1))})
	if err != nil {
		t.Fatal(err)
	}
	if state := describe(t, w, v.VolumeID).State; state != creating {
		t.Errorf("state %s", state)
	}
	if err := w.Advance(2 * time.Second); err != nil {
		t.Fatal(err)
	}
	if state := describe(t, w, v.VolumeID).State; state != available {
		t.Errorf("state %s", state)
	}
}
