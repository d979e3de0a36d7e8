package lifecycle_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

func TestAfterCreate_everyCase(t *testing.T) {
	here, elsewhere := lifecycle.Holder{Name: "pv"}, lifecycle.Holder{Name: "pv", Elsewhere: true}
	for _, row := range []struct {
		given lifecycle.Answer
		want  lifecycle.Fate
	}{
		{lifecycle.Answer{Desired: true, Claimed: true, Usable: true}, lifecycle.Save},
		{lifecycle.Answer{Desired: true, Claimed: false, Usable: true}, lifecycle.Save},
		{lifecycle.Answer{Desired: true, Claimed: true, Usable: false}, lifecycle.Delete},
		{lifecycle.Answer{Desired: false, Claimed: true, Usable: true}, lifecycle.Delete},
		{lifecycle.Answer{Desired: false, Claimed: false, Usable: true}, lifecycle.Delete},
		{lifecycle.Answer{Desired: true, Claimed: true, Usable: true, MaySaved: true}, lifecycle.Save},
		{lifecycle.Answer{Desired: true, Claimed: true, Usable: false, MaySaved: true}, lifecycle.Retain},
		{lifecycle.Answer{Desired: false, Claimed: true, Usable: true, MaySaved: true}, lifecycle.Retain},
		{lifecycle.Answer{Desired: false, Claimed: false, Usable: true, MaySaved: true}, lifecycle.Retain},
		{lifecycle.Answer{Desired: false, Claimed: false, Usable: true, MaySaved: true, Holder: here}, lifecycle.Leave},
		{lifecycle.Answer{Desired: true, Claimed: true, Usable: true, Holder: here}, lifecycle.Wait},
		{lifecycle.Answer{Desired: true, Claimed: true, Usable: false, Holder: here}, lifecycle.Wait},
		{lifecycle.Answer{Desired: true, Claimed: false, Usable: true, Holder: here}, lifecycle.Leave},
		{lifecycle.Answer{Desired: false, Claimed: true, Usable: true, Holder: here}, lifecycle.Leave},
		{lifecycle.Answer{Desired: false, Claimed: false, Usable: false, Holder: here}, lifecycle.Leave},
		{lifecycle.Answer{Desired: false, Claimed: false, Usable: true, Holder: elsewhere}, lifecycle.Wait},
		{lifecycle.Answer{Desired: true, Claimed: true, Usable: true, Holder: elsewhere}, lifecycle.Wait},
	} {
		if got := lifecycle.AfterCreate(row.given); got != row.want {
			t.Errorf("%+v: %s, want %s", row.given, got, row.want)
		}
	}
}

func volume(name, driver, handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle},
		}},
	}
}

func TestFindHolder(t *testing.T) {
	away := volume("away", "d", "v")
	elsewhere := func(pv *corev1.PersistentVolume) bool { return pv.Name == "away" }
	for name, row := range map[string]struct {
		volumes []*corev1.PersistentVolume
		want    lifecycle.Holder
	}{
		"none":           {nil, lifecycle.Holder{}},
		"no CSI volume":  {[]*corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, lifecycle.Holder{}},
		"another volume": {[]*corev1.PersistentVolume{volume("a", "d", "w")}, lifecycle.Holder{}},
		"another driver": {[]*corev1.PersistentVolume{volume("a", "e", "v")}, lifecycle.Holder{}},
		"any name":       {[]*corev1.PersistentVolume{volume("a", "d", "w"), volume("b", "d", "v")}, lifecycle.Holder{Name: "b"}},
		"elsewhere":      {[]*corev1.PersistentVolume{away}, lifecycle.Holder{Name: "away", Elsewhere: true}},
		"here counts":    {[]*corev1.PersistentVolume{away, volume("b", "d", "v")}, lifecycle.Holder{Name: "b"}},
		"here first":     {[]*corev1.PersistentVolume{volume("b", "d", "v"), away}, lifecycle.Holder{Name: "b"}},
	} {
		if got := lifecycle.FindHolder(slices.Values(row.volumes), "d", "v", elsewhere); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}

// storage is a driver that keeps CSI's rules and nothing more: it may have done
// what it gives no answer for, and a call that finds it throttled says nothing
// about an earlier one. rejects is fixed: a request is good or it is not.
type storage struct {
	t       *rapid.T
	exists  bool
	rejects bool
	calm    bool
}

func (s *storage) draw(what string, from ...codes.Code) codes.Code {
	return rapid.SampledFrom(from).Draw(s.t, what)
}

// create answers a call; OK says that it names the volume.
func (s *storage) create(call claim.Call) codes.Code {
	trouble := "none"
	if !s.calm {
		trouble = rapid.SampledFrom([]string{"none", "lost", "before", "mute"}).Draw(s.t, "trouble")
	}
	switch {
	case trouble == "before":
		return s.draw("open", codes.DeadlineExceeded, codes.Unavailable, codes.Canceled, codes.Aborted)
	case trouble == "mute":
		from := []codes.Code{codes.Internal, codes.Unknown, codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted, codes.FailedPrecondition, codes.DataLoss}
		if call == claim.CallSnapshot {
			from = append(from, codes.NotFound)
		}
		return s.draw("mute", append(from, codes.AlreadyExists)...)
	case s.rejects:
		return s.draw("rejected", codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented)
	}
	s.exists = true
	if trouble == "lost" {
		return s.draw("lost", codes.DeadlineExceeded, codes.Unavailable, codes.Canceled, codes.Aborted)
	}
	return codes.OK
}

// world is one object, its intent, and PersistentVolumes that others write.
type world struct {
	*storage
	call                      claim.Call
	desired, intent, repeated bool
	saved                     string // the PersistentVolume of the volume, "" if there is none
	maySaved                  bool   // what the intent says
	retained                  bool   // an administrator set the policy to Retain and deleted the object
}

// step is what a controller does with an intent.
func (w *world) step() {
	if !w.intent {
		if !w.desired || w.saved != "" {
			return
		}
		w.intent, w.repeated, w.maySaved = true, false, false
	}
	code := w.create(w.call)
	if code != codes.OK {
		outcome := lifecycle.AfterFailedCreate(lifecycle.Creation{
			Call: w.call, Copied: w.call == claim.CallSnapshot, Repeated: w.repeated, Desired: w.desired,
		}, answer(code))
		w.repeated = true
		w.intent = outcome.KeepsIntent()
		return
	}
	w.repeated = true
	switch fate := lifecycle.AfterCreate(lifecycle.Answer{Desired: w.desired, Claimed: w.desired, Usable: true, MaySaved: w.maySaved, Holder: lifecycle.Holder{Name: w.saved}}); fate {
	case lifecycle.Save, lifecycle.Retain:
		w.maySaved = true
		switch {
		case w.calm:
			w.saved, w.intent = "pvc-1", false
		case rapid.IntRange(0, 9).Draw(w.t, "the process ends before the object is created: 0") > 0:
			w.saved, w.intent = "pvc-1", rapid.Bool().Draw(w.t, "the process ends before the intent goes")
		}
	case lifecycle.Delete:
		if w.saved != "" || w.retained {
			w.t.Fatalf("the volume of PersistentVolume %q is deleted, retained: %v", w.saved, w.retained)
		}
		w.exists, w.intent = false, false
	case lifecycle.Leave:
		w.intent = false
	}
}

// TestModel_nothingIsLeakedAndNothingOfOthersDeleted: for all answers of an honest
// driver in any order, when no intent is left each volume has its object,
// and each object its volume; and when the trouble ends, the intents do.
func TestModel_nothingIsLeakedAndNothingOfOthersDeleted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{storage: &storage{t: t, rejects: rapid.Bool().Draw(t, "the request is bad")}, desired: true}
		w.call = rapid.SampledFrom([]claim.Call{claim.CallCreate, claim.CallSnapshot}).Draw(t, "call")
		check := func() {
			if !w.intent && w.exists != (w.saved != "" || w.retained) {
				t.Fatalf("without an intent: the volume exists: %v; its object is %q", w.exists, w.saved)
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"step", "step", "step", "restart", "delete", "rebind", "retain"}).Draw(t, "what") {
			case "step":
				w.step()
			case "restart":
				w.repeated = true // a process does not know what the one before it did
			case "delete":
				w.desired = false
			case "rebind":
				if w.saved != "" {
					w.saved, w.desired = fmt.Sprintf("kept-by-%s", w.saved), false
				}
			case "retain":
				if w.saved != "" {
					w.saved, w.desired, w.retained = "", false, true
				}
			}
			check()
		}
		w.calm = true
		for range 3 {
			w.step()
		}
		check()
		if w.intent && (w.saved == "" || !w.desired) {
			t.Fatalf("the intent stays although nothing fails: %+v", *w)
		}
	})
}
