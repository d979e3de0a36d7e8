package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
)

// clock is an unfinished with a time that only the test moves.
type clock struct {
	*unfinished
	time time.Time
}

func newClock() *clock {
	c := &clock{unfinished: newUnfinished(), time: time.Unix(1e9, 0)}
	c.now = func() time.Time { return c.time }
	return c
}

// attempt begins and ends an attempt that takes a second.
func (c *clock) attempt(method string, request proto.Message, code codes.Code) {
	end := c.begin(method, request)
	c.time = c.time.Add(time.Second)
	end(code)
}

// page is what a scrape finds.
func (c *clock) page(t *testing.T) string {
	t.Helper()
	return metricstest.SeriesOf(t, c.unfinished)
}

func TestUnfinished_ageIsFromTheFirstAttempt(t *testing.T) {
	c := newClock()
	stage := &csi.NodeStageVolumeRequest{VolumeId: "vol-1"}
	for range 3 {
		c.attempt("NodeStageVolume", stage, codes.Unavailable)
		c.time = c.time.Add(time.Minute)
	}
	if got, want := c.page(t), "rpc_oldest_seconds NodeStageVolume Unavailable 183\nrpc_unfinished NodeStageVolume Unavailable 1"; got != want {
		t.Errorf("the page has\n%s\nwant\n%s", got, want)
	}
	end := c.begin("NodeStageVolume", stage)
	if got, want := c.page(t), "rpc_oldest_seconds NodeStageVolume Unavailable 183\nrpc_unfinished NodeStageVolume Unavailable 1"; got != want {
		t.Errorf("while it is repeated the page has\n%s\nwant\n%s", got, want)
	}
	c.time = c.time.Add(retryTime)
	if got, want := c.page(t), "rpc_oldest_seconds NodeStageVolume running 60\nrpc_unfinished NodeStageVolume running 1"; got != want {
		t.Errorf("while it hangs the page has\n%s\nwant\n%s", got, want)
	}
	end(codes.OK)
	if got := c.page(t); got != "" || c.known != 0 {
		t.Errorf("after the success the page has\n%s, and %d calls are known", got, c.known)
	}
}

// A driver that hangs longer than its callers wait has not answered: it hangs from the first
// attempt on.
func TestUnfinished_aTimeLimitIsNoAnswer(t *testing.T) {
	c := newClock()
	stage := &csi.NodeStageVolumeRequest{VolumeId: "vol-1"}
	c.attempt("NodeStageVolume", stage, codes.DeadlineExceeded)
	c.time = c.time.Add(time.Minute)
	c.attempt("NodeStageVolume", stage, codes.Aborted)
	c.time = c.time.Add(time.Minute)
	defer c.begin("NodeStageVolume", stage)(codes.OK)
	if got, want := c.page(t), "rpc_oldest_seconds NodeStageVolume running 122\nrpc_unfinished NodeStageVolume running 1"; got != want {
		t.Errorf("the page has\n%s\nwant\n%s", got, want)
	}
}

// Of two attempts at the same time, the answer to one says nothing of the other.
func TestUnfinished_attemptsOverlap(t *testing.T) {
	c := newClock()
	stage := &csi.NodeStageVolumeRequest{VolumeId: "vol-1"}
	hangs := c.begin("NodeStageVolume", stage)
	c.attempt("NodeStageVolume", stage, codes.Internal)
	c.time = c.time.Add(retryTime)
	if got, want := c.page(t), "rpc_oldest_seconds NodeStageVolume running 60\nrpc_unfinished NodeStageVolume running 1"; got != want {
		t.Errorf("the page has\n%s\nwant\n%s", got, want)
	}
	hangs(codes.OK)
	if got := c.page(t); got != "" {
		t.Errorf("after the success the page has\n%s", got)
	}
}

// What ends a call that failed: a call that undoes it, or that nothing repeats it.
func TestUnfinished_endsWithItsOpposite(t *testing.T) {
	publish := func(target string) proto.Message {
		return &csi.NodePublishVolumeRequest{VolumeId: "vol-1", TargetPath: target}
	}
	attach := func(node string) proto.Message {
		return &csi.ControllerPublishVolumeRequest{VolumeId: "vol-1", NodeId: node}
	}
	for name, c := range map[string]struct {
		failed  string
		request proto.Message
		done    string
		by      proto.Message
		ends    bool
	}{
		"unstage ends stage":               {"NodeStageVolume", &csi.NodeStageVolumeRequest{VolumeId: "vol-1"}, "NodeUnstageVolume", &csi.NodeUnstageVolumeRequest{VolumeId: "vol-1"}, true},
		"not that of another volume":       {"NodeStageVolume", &csi.NodeStageVolumeRequest{VolumeId: "vol-1"}, "NodeUnstageVolume", &csi.NodeUnstageVolumeRequest{VolumeId: "vol-2"}, false},
		"unpublish ends publish":           {"NodePublishVolume", publish("/a"), "NodeUnpublishVolume", &csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: "/a"}, true},
		"not at another path":              {"NodePublishVolume", publish("/a"), "NodeUnpublishVolume", &csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: "/b"}, false},
		"detach ends attach":               {"ControllerPublishVolume", attach("n1"), "ControllerUnpublishVolume", &csi.ControllerUnpublishVolumeRequest{VolumeId: "vol-1", NodeId: "n1"}, true},
		"not of another node":              {"ControllerPublishVolume", attach("n1"), "ControllerUnpublishVolume", &csi.ControllerUnpublishVolumeRequest{VolumeId: "vol-1", NodeId: "n2"}, false},
		"detach of all nodes":              {"ControllerPublishVolume", attach("n1"), "ControllerUnpublishVolume", &csi.ControllerUnpublishVolumeRequest{VolumeId: "vol-1"}, true},
		"a deletion ends everything":       {"ControllerExpandVolume", &csi.ControllerExpandVolumeRequest{VolumeId: "vol-1"}, "DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: "vol-1"}, true},
		"a publication does not end stage": {"NodeStageVolume", &csi.NodeStageVolumeRequest{VolumeId: "vol-1"}, "NodePublishVolume", publish("/a"), false},
	} {
		u := newClock()
		u.attempt(c.failed, c.request, codes.Internal)
		u.attempt(c.done, c.by, codes.OK)
		if got := u.page(t) == ""; got != c.ends {
			t.Errorf("%s: ended is %t", name, got)
		}
	}
}

func TestUnfinished_isForgottenWithoutRepetition(t *testing.T) {
	c := newClock()
	c.attempt("CreateVolume", &csi.CreateVolumeRequest{Name: "pvc-1"}, codes.ResourceExhausted)
	c.time = c.time.Add(forgetAfter)
	if c.page(t) == "" {
		t.Error("forgotten too early")
	}
	c.time = c.time.Add(time.Second)
	if got := c.page(t); got != "" || c.known != 0 {
		t.Errorf("after %s the page has\n%s", forgetAfter, got)
	}
	c.attempt("CreateVolume", &csi.CreateVolumeRequest{Name: "pvc-1"}, codes.ResourceExhausted)
	if got, want := c.page(t), "rpc_oldest_seconds CreateVolume ResourceExhausted 1\nrpc_unfinished CreateVolume ResourceExhausted 1"; got != want {
		t.Errorf("a new attempt is\n%s\nwant\n%s", got, want)
	}
}

func TestUnfinished_isBounded(t *testing.T) {
	c := newClock()
	for i := range mostUnfinished + 10 {
		c.attempt("DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: fmt.Sprint(i)}, codes.Internal)
	}
	c.attempt("GetCapacity", &csi.GetCapacityRequest{}, codes.Internal)
	if c.known != mostUnfinished || len(c.calls) != mostUnfinished {
		t.Errorf("%d calls of %d subjects are known", c.known, len(c.calls))
	}
}

func TestStepOf(t *testing.T) {
	for method, want := range map[string]string{
		"CreateVolume": "create", "DeleteVolume": "delete", "ControllerPublishVolume": "attach", "ControllerUnpublishVolume": "detach",
		"NodeStageVolume": "stage", "NodeUnstageVolume": "unstage", "NodePublishVolume": "publish", "NodeUnpublishVolume": "unpublish",
		"ControllerExpandVolume": "expand", "NodeExpandVolume": "expand filesystem", "ControllerModifyVolume": "modify",
		"CreateSnapshot": "snapshot", "DeleteSnapshot": "delete snapshot", "NodeGetInfo": "", "GetCapacity": "", "Probe": "",
		"ModifyVolumeProperties": "modify", "CreateVolumeGroupSnapshot": "group snapshot",
	} {
		if got := stepOf(method); got != want {
			t.Errorf("%s is the step %q, want %q", method, got, want)
		}
	}
}
