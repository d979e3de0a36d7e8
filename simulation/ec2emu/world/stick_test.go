package world

import (
	"testing"
	"time"
)

func TestStick_keepsATransitionUntilUnstick(t *testing.T) {
	bubble(t, Config{Knobs: Bench()}, func(t *testing.T, w *World) {
		instance, volume := newInstance(t, w, InstanceSpec{}), newVolume(t, w)
		waitState(t, w, volume, available)
		stays := func(state string) {
			t.Helper()
			if err := w.Stick(volume, instance); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if got := attachmentState(t, w, volume, instance); got != state {
				t.Fatalf("after an hour it is %q, want %q", got, state)
			}
			if err := w.Unstick(volume, instance); err != nil {
				t.Fatal(err)
			}
		}
		attach(t, w, volume, instance, "/dev/sdf")
		stays(attaching)
		waitAttachment(t, w, volume, instance, attached)
		wantCode(t, w.Stick(volume, instance), "IncorrectState")
		detach(t, w, volume, instance, false)
		stays(detaching)
		waitState(t, w, volume, available)
		wantCode(t, w.Unstick(volume, instance), "InvalidAttachment.NotFound")
	})
}
