package health

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const driverName = "hostpath.csi.k8s.io"

// pair is a volume with the given handle and the claim that is bound to it.
func pair(handle string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-" + handle, UID: types.UID("uid-" + handle)},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + handle},
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + handle},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: handle},
			},
		},
	}
	return volume, claim
}

// fixture is a cluster with claims bound to volumes of the given handles.
type fixture struct {
	*apiserver.Cluster
	t          *testing.T
	controller *Controller
}

func newFixture(t *testing.T, list bool, handles ...string) *fixture {
	t.Helper()
	driver := csidriver.New(driverName)
	driver.ReportHealth(list)
	var objects []runtime.Object
	for _, handle := range handles {
		volume, claim := pair(handle)
		objects = append(objects, volume, claim)
	}
	f := &fixture{Cluster: apiserver.New(t, driver, objects...), t: t}
	f.controller = New(f.Env, Options{})
	f.Start()
	return f
}

func (f *fixture) poll() time.Duration { return f.controller.poll(f.Context()) }

// status returns a claim's health status, nil if it has none.
func (f *fixture) status(handle string) *corev1.VolumeHealthStatus {
	f.t.Helper()
	claim, err := f.Core.CoreV1().PersistentVolumeClaims("shop").Get(f.Context(), "data-"+handle, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return claim.Status.HealthStatus
}

// shows returns "Status/Reason …" of a claim, "-" without a status.
func (f *fixture) shows(handle string) string {
	f.t.Helper()
	status := f.status(handle)
	if status == nil {
		return "-"
	}
	return fmt.Sprint(describe(status.HealthConditions))
}

func (f *fixture) want(handle, conditions string) {
	f.t.Helper()
	if got := f.shows(handle); got != conditions {
		f.t.Errorf("the claim of %s shows %s, want %s", handle, got, conditions)
	}
}

// onlyList makes a driver that lists and lacks GET_VOLUME_HEALTH. CSI forbids that,
// but drivers do it.
func onlyList(d *csidriver.Driver) {
	d.Controller = slices.DeleteFunc(d.Controller, func(kind csi.ControllerServiceCapability_RPC_Type) bool {
		return kind == csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH
	})
}

func TestPoll_writesOnlyDifferences(t *testing.T) {
	for _, list := range []bool{true, false} {
		f := newFixture(t, list, "a", "b", "c")
		f.Driver.SetHealth("b", csidriver.Problem(degraded, "Slow", "2 of 3 replicas"))
		f.poll()
		f.want("a", "-")
		f.want("b", "[Degraded/Slow]")
		f.poll()
		f.poll()
		if writes := len(f.Writes()); writes != 1 {
			t.Errorf("list %v: three polls of one degraded volume made %d writes, want 1", list, writes)
		}
	}
}

func TestPoll_removesConditionsThatTheReportLacks(t *testing.T) {
	f := newFixture(t, true, "a")
	f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""), csidriver.Problem(inaccessible, "PathsLost", ""))
	f.poll()
	f.want("a", "[Inaccessible/PathsLost Degraded/Slow]")
	f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
	f.poll()
	f.want("a", "[Degraded/Slow]")
}

func TestPoll_clearsARecoveredVolume(t *testing.T) {
	t.Run("at once if the driver confirms it", func(t *testing.T) {
		for _, list := range []bool{true, false} {
			f := newFixture(t, list, "a")
			f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
			f.poll()
			f.Driver.SetHealth("a")
			f.poll()
			f.want("a", "[]")
			if f.status("a").LastTransitionTime.IsZero() {
				t.Error("the claim does not show since when it is well")
			}
		}
	})
	t.Run("after two consecutive complete lists without GET_VOLUME_HEALTH", func(t *testing.T) {
		f := newFixture(t, true, "a")
		onlyList(f.Driver)
		f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
		f.poll()
		f.Driver.SetHealth("a")
		f.poll()
		f.want("a", "[Degraded/Slow]")
		f.poll()
		f.want("a", "[]")
	})
	t.Run("a failed list between the two resets the count", func(t *testing.T) {
		f := newFixture(t, true, "a")
		onlyList(f.Driver)
		f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
		f.poll()
		f.Driver.SetHealth("a")
		f.poll()
		f.fail("ControllerListVolumeHealth", codes.Unavailable, f.poll)
		f.poll()
		f.want("a", "[Degraded/Slow]")
		f.poll()
		f.want("a", "[]")
	})
	t.Run("a missed volume that is not healthy keeps its condition", func(t *testing.T) {
		f := newFixture(t, true, "a", "b")
		f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
		f.poll()
		f.Driver.SetHealth("a")
		f.Driver.Before = func(_ context.Context, rpc string, _ any) error {
			if rpc == "ControllerGetVolumeHealth" {
				f.Driver.SetHealth("a", csidriver.Problem(dataLoss, "Torn", ""))
			}
			return nil
		}
		f.poll()
		f.want("a", "[DataLoss/Torn]")
	})
}

// fail runs a step while an RPC answers with a code.
func (f *fixture) fail(rpc string, code codes.Code, step func() time.Duration) {
	f.Driver.Before = func(_ context.Context, called string, _ any) error {
		if called == rpc {
			return csidriver.Fail(code, "not now")
		}
		return nil
	}
	step()
	f.Driver.Before = nil
}

func TestPoll_aFailedCallChangesNothing(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.NotFound, codes.Unimplemented, codes.DeadlineExceeded} {
		for _, c := range []struct {
			list bool
			rpc  string
		}{{true, "ControllerListVolumeHealth"}, {true, "ControllerGetVolumeHealth"}, {false, "ControllerGetVolumeHealth"}} {
			f := newFixture(t, c.list, "sick", "well")
			f.Driver.SetHealth("sick", csidriver.Problem(degraded, "Slow", ""))
			f.poll()
			f.Driver.SetHealth("sick")
			f.fail(c.rpc, code, f.poll)
			f.want("sick", "[Degraded/Slow]")
			f.want("well", "-")
		}
	}
}

func TestPoll_mergesAVolumeThatIsOnTwoPages(t *testing.T) {
	f := newFixture(t, true, "a", "b", "c", "d")
	f.Driver.Health.PageSize, f.Driver.Health.Twice = 1, true
	for _, handle := range []string{"a", "b", "c", "d"} {
		f.Driver.SetHealth(handle, csidriver.Problem(degraded, "Slow", ""))
	}
	f.Driver.After = func(_ context.Context, rpc string, request any) error {
		if r, ok := request.(*csi.ControllerListVolumeHealthRequest); ok && rpc == "ControllerListVolumeHealth" && r.GetStartingToken() == "" {
			// Between the first page and the second, which has the volume again.
			f.Driver.SetHealth("a", csidriver.Problem(inaccessible, "Gone", ""))
		}
		return nil
	}
	f.poll()
	f.want("a", "[Inaccessible/Gone Degraded/Slow]")
	f.want("d", "[Degraded/Slow]")
	if pages := f.Driver.Count("ControllerListVolumeHealth"); pages != 4 {
		t.Errorf("four pages were asked for in %d calls", pages)
	}
}

func TestPoll_restartsAfterARejectedPageToken(t *testing.T) {
	f := newFixture(t, true, "a", "b")
	f.Driver.Health.PageSize = 1
	f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
	f.Driver.SetHealth("b", csidriver.Problem(degraded, "Slow", ""))
	f.Driver.Health.LoseTokens = 2
	f.poll()
	f.want("b", "[Degraded/Slow]")

	f = newFixture(t, true, "a", "b")
	f.Driver.Health.PageSize = 1
	f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
	f.Driver.SetHealth("b", csidriver.Problem(degraded, "Slow", ""))
	f.Driver.Health.LoseTokens = 1000
	f.poll()
	f.want("a", "-") // the pages before the rejection are not used
	if calls := f.Driver.Count("ControllerListVolumeHealth"); calls != 8 {
		t.Errorf("a driver that knows none of its tokens is called %d times, want 8 and then a pause", calls)
	}
}

func TestPoll_endsAListWithoutEnd(t *testing.T) {
	f := newFixture(t, true, "a")
	f.Driver.Health.PageSize = 1
	f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
	f.Driver.SetHealth("b", csidriver.Problem(degraded, "Slow", ""))
	f.Driver.Before = func(_ context.Context, _ string, request any) error {
		if r, ok := request.(*csi.ControllerListVolumeHealthRequest); ok {
			r.StartingToken = "" // the driver ignores its token
		}
		return nil
	}
	f.poll()
	f.want("a", "-")
	if calls := f.Driver.Count("ControllerListVolumeHealth"); calls > 3 {
		t.Errorf("a list that goes in circles was followed for %d pages", calls)
	}
}

// dropField makes the API server one whose feature gate is off: it drops a new
// healthStatus.
func (f *fixture) dropField(on *bool) {
	f.React("patch", "persistentvolumeclaims", func(q apiserver.Request) error {
		if *on {
			copy(q.Body, bytes.Replace(q.Body, []byte("healthStatus"), []byte("unknownField"), 1))
		}
		return nil
	})
}

func TestPoll_slowsDownWhileTheAPIServerDropsTheField(t *testing.T) {
	f := newFixture(t, true, "a", "b", "c")
	off := true
	f.dropField(&off)
	for _, handle := range []string{"a", "b", "c"} {
		f.Driver.SetHealth(handle, csidriver.Problem(degraded, "Slow", ""))
	}
	for n := range 3 {
		if pause := f.poll(); pause < 50*time.Minute {
			t.Errorf("the next poll is in %v, want about an hour", pause)
		}
		if writes := len(f.Writes()); writes != n+1 {
			t.Errorf("%d writes after %d polls, want one each", writes, n+1)
		}
	}
	off = false // the feature gate is turned on
	if pause := f.poll(); pause > 10*time.Minute {
		t.Errorf("the field is stored now, and the next poll is in %v", pause)
	}
	f.want("c", "[Degraded/Slow]")
}

func TestShow_keepsTheTimeOfTheSameConditions(t *testing.T) {
	volume, claim := pair("a")
	before := metav1.NewTime(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	claim.Status.HealthStatus = &corev1.VolumeHealthStatus{LastTransitionTime: before, HealthConditions: []corev1.VolumeHealthCondition{
		{Status: "Degraded", Reason: "Slow", Message: "2 of 3 replicas"},
	}}
	driver := csidriver.New(driverName)
	driver.ReportHealth(true)
	f := &fixture{Cluster: apiserver.New(t, driver, volume, claim), t: t}
	f.controller = New(f.Env, Options{})
	f.Start()

	driver.SetHealth("a", csidriver.Problem(degraded, "Slow", "1 of 3 replicas"))
	f.poll()
	if now := f.status("a"); !now.LastTransitionTime.Equal(&before) || now.HealthConditions[0].Message != "1 of 3 replicas" {
		t.Errorf("after a new message the status is %v, want the new message and the old time", now)
	}
	driver.SetHealth("a", csidriver.Problem(inaccessible, "Gone", ""))
	f.poll()
	if now := f.status("a"); now.LastTransitionTime.Equal(&before) {
		t.Error("another condition has the time of the first")
	}
}

func TestShow_isGuardedByTheUIDOnly(t *testing.T) {
	f := newFixture(t, true, "a")
	f.Driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
	f.poll()
	body := map[string]map[string]any{}
	if err := json.Unmarshal(f.Writes()[0].Body, &body); err != nil {
		t.Fatal(err)
	}
	if _, has := body["metadata"]["resourceVersion"]; has || body["metadata"]["uid"] != "uid-a" || f.Writes()[0].Subresource != "status" {
		t.Errorf("the patch of %q is %s", f.Writes()[0].Subresource, f.Writes()[0].Body)
	}

	// The claim of the cache is deleted, and another has its name.
	f = newFixture(t, true, "a")
	stale, _ := f.controller.claims.Get("shop/data-a")
	stale = stale.DeepCopy()
	stale.UID = "another"
	f.controller.show(f.Context(), stale, conditionsOf(entries{csidriver.Problem(degraded, "Slow", "")}))
	f.want("a", "-")
}

func TestPoll_retriesFailedWrites(t *testing.T) {
	f := newFixture(t, true, "a", "b")
	fail := true
	f.React("patch", "persistentvolumeclaims", func(q apiserver.Request) error {
		if fail && q.Name == "data-a" {
			return apierrors.NewGenericServerResponse(http.StatusForbidden, "patch", schema.GroupResource{Resource: q.Resource}, q.Name, "no", 0, false)
		}
		return nil
	})
	for _, handle := range []string{"a", "b"} {
		f.Driver.SetHealth(handle, csidriver.Problem(degraded, "Slow", ""))
	}
	f.poll()
	f.want("a", "-")
	f.want("b", "[Degraded/Slow]")
	fail = false
	f.poll()
	f.want("a", "[Degraded/Slow]")
}

func TestBound_listsTheVolumesOfThisDriverAndScope(t *testing.T) {
	mine, mineClaim := pair("mine")
	foreign, foreignClaim := pair("foreign")
	foreign.Spec.CSI.Driver = "other.example.com"
	rebound, reboundClaim := pair("rebound")
	rebound.Spec.ClaimRef.UID = "an-earlier-claim"
	half, halfClaim := pair("half")
	halfClaim.Spec.VolumeName = ""
	free, _ := pair("free")
	free.Spec.ClaimRef = nil
	elsewhere, elsewhereClaim := pair("elsewhere")
	elsewhere.Spec.NodeAffinity = onNode("node-2")
	mine.Spec.NodeAffinity = onNode("node-1")
	driver := csidriver.New(driverName)
	driver.ReportHealth(true)
	f := &fixture{t: t, Cluster: apiserver.New(t, driver, mine, mineClaim, foreign, foreignClaim, rebound, reboundClaim,
		half, halfClaim, free, elsewhere, elsewhereClaim)}
	f.Env.Scope = cluster.Scope{Node: "node-1", Segments: map[string]string{"zone": "node-1"}}
	f.controller = New(f.Env, Options{})
	f.Start()
	var handles []string
	for _, b := range f.controller.bound() {
		handles = append(handles, b.handle)
	}
	if !slices.Equal(handles, []string{"mine"}) {
		t.Errorf("this node polls %v, want its own volume only", handles)
	}
}

func onNode(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
}

func TestRun_doesNotCallADriverWithoutHealth(t *testing.T) {
	volume, claim := pair("a")
	c := apiserver.New(t, csidriver.New(driverName), volume, claim)
	controller := New(c.Env, Options{Interval: time.Millisecond})
	stop := c.Run(c.Env, controller)
	time.Sleep(20 * time.Millisecond)
	stop()
	if calls := c.Driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %v", calls)
	}
}

func TestRun_polls(t *testing.T) {
	volume, claim := pair("a")
	driver := csidriver.New(driverName)
	driver.ReportHealth(true)
	c := apiserver.New(t, driver, volume, claim)
	f := &fixture{Cluster: c, t: t}
	stop := c.Run(c.Env, New(c.Env, Options{Interval: time.Millisecond}))
	driver.SetHealth("a", csidriver.Problem(degraded, "Slow", ""))
	c.Eventually(func() error {
		if got := f.shows("a"); got != "[Degraded/Slow]" {
			return fmt.Errorf("the claim shows %s", got)
		}
		return nil
	})
	stop()
}

func TestGet_rejectsInvalidAnswers(t *testing.T) {
	cases := map[string]*csi.ControllerGetVolumeHealthResponse{
		"no health at all":         {},
		"health of another volume": {VolumeHealth: &csi.VolumeHealth{VolumeId: "b"}},
	}
	for name, answer := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, false, "a")
			f.Driver.Health.Answer = answer
			if _, err := f.controller.get(f.Context(), "a"); err == nil {
				t.Errorf("the answer %v is accepted", answer)
			}
		})
	}
}
