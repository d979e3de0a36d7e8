package lifecycle_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// outcomes of the two calls that change a volume, by code.
func outcomes() map[codes.Code][2]claim.Outcome {
	const uncertain, final, infeasible, inUse = claim.OutcomeUncertain, claim.OutcomeFinal, claim.OutcomeInfeasible, claim.OutcomeInUse
	return map[codes.Code][2]claim.Outcome{
		codes.Canceled: {uncertain, uncertain}, codes.DeadlineExceeded: {uncertain, uncertain}, codes.Unavailable: {uncertain, uncertain},
		codes.Aborted: {uncertain, uncertain}, codes.ResourceExhausted: {uncertain, uncertain},
		codes.InvalidArgument: {infeasible, infeasible}, codes.OutOfRange: {infeasible, final}, codes.NotFound: {infeasible, final},
		codes.FailedPrecondition: {inUse, final},
		codes.Unknown:            {final, final}, codes.AlreadyExists: {final, final}, codes.PermissionDenied: {final, final}, codes.Unimplemented: {final, final},
		codes.Internal: {final, final}, codes.DataLoss: {final, final}, codes.Unauthenticated: {final, final}, codes.Code(99): {final, final},
	}
}

func TestAfterFailedChange_everyCode(t *testing.T) {
	now, pause := time.Unix(1000, 0), time.Minute
	for code, want := range outcomes() {
		failure := answer(code)
		for _, repeats := range []bool{false, true} {
			expand := lifecycle.AfterFailedExpand(lifecycle.ExpandStep{Target: resource.MustParse("3Gi"), Repeats: repeats}, failure, now, pause)
			rejected := want[0] == claim.OutcomeInfeasible && repeats
			if expand.Outcome != want[0] || expand.History.Final != (want[0] != claim.OutcomeUncertain) || expand.History.NeedsIdle(now) != (want[0] == claim.OutcomeInUse) ||
				(expand.Pause == pause) != rejected || (expand.History.Rest("3Gi", now) == pause) != rejected {
				t.Errorf("%s, expand, repeats %t: %+v", code, repeats, expand)
			}
		}
		for _, desired := range []string{"gold", "silver"} {
			modify := lifecycle.AfterFailedModify("gold", desired, failure, now, pause)
			rejected := want[1] == claim.OutcomeInfeasible && desired == "gold"
			if modify.Outcome != want[1] || modify.History.Final != (want[1] != claim.OutcomeUncertain) || modify.History.Rest("silver", now) != 0 ||
				(modify.Pause == pause) != rejected || (modify.History.Rest("gold", now) == pause) != rejected {
				t.Errorf("%s, modify, desired %s: %+v", code, desired, modify)
			}
		}
		node := lifecycle.AfterFailedNodeExpand(failure)
		if node.Outcome != want[0] || node.Parked != (want[0] == claim.OutcomeInUse) || node.Repeat != (want[0] == claim.OutcomeUncertain || want[0] == claim.OutcomeFinal) {
			t.Errorf("%s, on the node: %+v", code, node)
		}
	}
	if len(outcomes()) != 17 {
		t.Errorf("%d codes", len(outcomes()))
	}
}

func TestHistory_inUseEnds(t *testing.T) {
	began := time.Unix(1000, 0)
	h := lifecycle.History{InUse: began}
	if !h.NeedsIdle(began.Add(time.Hour)) || h.NeedsIdle(began.Add(time.Hour+1)) || (lifecycle.History{}).NeedsIdle(began) {
		t.Error("a refusal lasts for an hour")
	}
}

func TestNextExpand_whatTheDriverCanDo(t *testing.T) {
	asked := claim.Resize{Desired: resource.MustParse("3Gi"), Granted: resource.MustParse("1Gi"), Volume: resource.MustParse("1Gi")}
	infeasible := asked
	infeasible.Allocated, infeasible.State = asked.Desired, corev1.PersistentVolumeClaimControllerResizeInfeasible
	onNode := asked
	onNode.Volume, onNode.State = asked.Desired, corev1.PersistentVolumeClaimNodeResizePending
	now := time.Unix(1000, 0)
	rejected := lifecycle.History{Rejected: "3Gi", RetryAt: now.Add(time.Minute)}
	for _, row := range []struct {
		view    claim.Resize
		driver  lifecycle.Expands
		history lifecycle.History
		want    lifecycle.ExpandStep
	}{
		{claim.Resize{}, lifecycle.Expands{Controller: true}, lifecycle.History{}, lifecycle.ExpandStep{}},
		{asked, lifecycle.Expands{}, lifecycle.History{}, lifecycle.ExpandStep{Action: lifecycle.ExpandUnable}},
		{asked, lifecycle.Expands{Controller: true}, lifecycle.History{}, lifecycle.ExpandStep{Action: lifecycle.ExpandCall, Target: asked.Desired}},
		{asked, lifecycle.Expands{Node: true}, lifecycle.History{}, lifecycle.ExpandStep{Action: lifecycle.ExpandOnNode, Target: asked.Desired}},
		{onNode, lifecycle.Expands{Controller: true}, lifecycle.History{}, lifecycle.ExpandStep{}},
		{infeasible, lifecycle.Expands{Controller: true}, lifecycle.History{}, lifecycle.ExpandStep{Action: lifecycle.ExpandCall, Target: asked.Desired, Repeats: true}},
		{infeasible, lifecycle.Expands{Controller: true}, rejected, lifecycle.ExpandStep{Action: lifecycle.ExpandWait, Target: asked.Desired, Repeats: true, After: time.Minute}},
		{asked, lifecycle.Expands{Controller: true}, rejected, lifecycle.ExpandStep{Action: lifecycle.ExpandCall, Target: asked.Desired}},
	} {
		got := lifecycle.NextExpand(row.view, row.driver, row.history, now)
		if got.Action != row.want.Action || got.Target.Cmp(row.want.Target) != 0 || got.Repeats != row.want.Repeats || got.After != row.want.After {
			t.Errorf("%+v, %+v: %+v, want %+v", row.driver, row.history, got, row.want)
		}
	}
}

func TestForeignClass(t *testing.T) {
	class := &storagev1.VolumeAttributesClass{DriverName: "d"}
	if lifecycle.ForeignClass(class, "d") != "" || lifecycle.ForeignClass(class, "e") == "" {
		t.Error("a class is for the driver that it names")
	}
}

// TestModify_model: a user changes the desired class, a driver applies it,
// rejects it, or gives an answer that leaves the effect open, and the process
// ends now and then. No attempt starts while the one before may run, a class is
// never asked for during its pause, and a desired class waits for no other.
func TestModify_model(t *testing.T) {
	codesOf := map[string]codes.Code{"rejected": codes.InvalidArgument, "failed": codes.Internal, "lost": codes.Unavailable}
	rapid.Check(t, func(t *rapid.T) {
		pvc, history, now := &corev1.PersistentVolumeClaim{}, lifecycle.History{}, time.Unix(0, 0)
		mayRun, rejected := "", map[string]time.Time{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			switch rapid.SampledFrom([]string{"user", "end", "sync", "sync", "sync"}).Draw(t, "what") {
			case "user":
				desired := rapid.SampledFrom([]string{"", "gold", "silver"}).Draw(t, "class")
				pvc.Spec.VolumeAttributesClassName = &desired
				continue
			case "end":
				history, rejected = lifecycle.History{}, map[string]time.Time{}
				continue
			}
			view := claim.ModifyOf(pvc)
			step := lifecycle.NextModify(view, history, now)
			switch step.Action {
			case claim.ModifyNothing:
				history = lifecycle.History{}
				continue
			case claim.ModifyCancel:
				claim.CancelModify(pvc)
				continue
			case claim.ModifyWait:
				if until := rejected[view.Desired]; step.After <= 0 || step.After > until.Sub(now) {
					t.Fatalf("class %q waits for %s; it was rejected until %s, and it is %s", view.Desired, step.After, until, now)
				}
				continue
			}
			if mayRun != "" && step.Class != mayRun {
				t.Fatalf("class %q is asked for while %q may be applied", step.Class, mayRun)
			}
			claim.BeginModify(pvc, step.Class, now)
			result := rapid.SampledFrom([]string{"applied", "rejected", "failed", "lost"}).Draw(t, "answer")
			if mayRun = ""; result == "lost" {
				mayRun = step.Class
			}
			delete(rejected, step.Class)
			if result == "applied" {
				claim.FinishModify(pvc, step.Class)
				history = lifecycle.History{}
				continue
			}
			then := lifecycle.AfterFailedModify(step.Class, view.Desired, answer(codesOf[result]), now, time.Minute)
			if result == "rejected" {
				rejected[step.Class] = now.Add(time.Minute)
			}
			if then.Pause > 0 && (result != "rejected" || step.Class != view.Desired) {
				t.Fatalf("%q was %s, and %q, which is desired, waits for %s", step.Class, result, view.Desired, then.Pause)
			}
			history = then.History
			claim.FailModify(pvc, then.Outcome, "code", "text", now)
		}
	})
}

func TestMayRun_anErrorThatIsNoAnswer(t *testing.T) {
	if !lifecycle.MayRun(claim.CallNode, errors.New("the pipe broke")) || lifecycle.MayRun(claim.CallNode, answer(codes.Internal)) {
		t.Error("only a final answer ends an operation")
	}
}
