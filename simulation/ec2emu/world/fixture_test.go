package world

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const (
	zoneA = "us-west-2a"
	zoneB = "us-west-2b"
)

func ptr[T any](v T) *T { return &v }

// start makes a world that ends with the test.
func start(t *testing.T, c Config) *World {
	t.Helper()
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// bubble runs a test in virtual time. The world must end inside.
func bubble(t *testing.T, c Config, test func(t *testing.T, w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			for _, wrong := range w.Audit() {
				t.Error(wrong)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, w)
	})
}

func codeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if err != nil {
		return "not an Error: " + err.Error()
	}
	return ""
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if got := codeOf(err); got != code {
		t.Errorf("code %q (%v); want %q", got, err, code)
	}
}

// newVolume creates one and waits until it is available.
func newVolume(t *testing.T, w *World, change ...func(*CreateVolumeRequest)) string {
	t.Helper()
	r := &CreateVolumeRequest{AvailabilityZone: zoneA, Size: ptr(int32(10)), VolumeType: "gp3"}
	for _, c := range change {
		c(r)
	}
	v, err := w.CreateVolume(r)
	if err != nil {
		t.Fatal(err)
	}
	waitState(t, w, v.VolumeID, available)
	return v.VolumeID
}

func newInstance(t *testing.T, w *World, spec InstanceSpec) string {
	t.Helper()
	id, err := w.RunInstance(spec)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if info, err := w.Info(id); err != nil {
			t.Fatal(err)
		} else if info.State.Name == running {
			return id
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s does not start", id)
	return ""
}

func attach(t *testing.T, w *World, volumeID, instanceID, device string) {
	t.Helper()
	if _, err := w.AttachVolume(&AttachVolumeRequest{VolumeID: volumeID, InstanceID: instanceID, Device: device}); err != nil {
		t.Fatal(err)
	}
}

func detach(t *testing.T, w *World, volumeID, instanceID string, force bool) {
	t.Helper()
	if _, err := w.DetachVolume(&DetachVolumeRequest{VolumeID: volumeID, InstanceID: instanceID, Force: force}); err != nil {
		t.Fatal(err)
	}
}

// describe is the present volume; nil if it does not exist.
func describe(t *testing.T, w *World, id string) *Volume {
	t.Helper()
	answer, err := w.DescribeVolumes(&DescribeVolumesRequest{Filters: []Filter{{"volume-id", []string{id}}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Volumes) == 0 {
		return nil
	}
	return &answer.Volumes[0]
}

func waitState(t *testing.T, w *World, id, state string) {
	t.Helper()
	for range 3000 {
		if v := describe(t, w, id); v != nil && v.State == state {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s does not become %s", id, state)
}

// attachmentState is the state of a volume's attachment to an instance, "" without one.
func attachmentState(t *testing.T, w *World, volumeID, instanceID string) string {
	t.Helper()
	if v := describe(t, w, volumeID); v != nil {
		for _, a := range v.Attachments {
			if a.InstanceID == instanceID {
				return a.State
			}
		}
	}
	return ""
}

func waitAttachment(t *testing.T, w *World, volumeID, instanceID, state string) {
	t.Helper()
	for range 3000 {
		if attachmentState(t, w, volumeID, instanceID) == state {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s at %s does not become %q", volumeID, instanceID, state)
}
