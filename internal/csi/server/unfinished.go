package server

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

const (
	// forgetAfter is how long a failed call counts as unfinished without being repeated.
	// The longest pauses of callers are those of the external-provisioner (5 minutes)
	// and of a pod's back-off (5 minutes).
	forgetAfter = 15 * time.Minute
	// mostUnfinished bounds the memory; further calls are not followed.
	mostUnfinished = 10_000
	// reasonRunning is the reason of a call that is being worked on.
	reasonRunning = "running"
	// retryTime is how long the repetition of a call that failed may take before it counts
	// as running: otherwise a scrape during a repetition would take a call that has failed
	// for an hour for one that has hung for an hour.
	retryTime = time.Minute
)

// unfinished follows the calls that change something, from their first attempt to the
// one that succeeds. A caller repeats a call that failed; the call is over when one
// attempt succeeds, when its opposite succeeds, or when it is not repeated any more.
type unfinished struct {
	now           func() time.Time
	count, oldest *prometheus.Desc

	mu    sync.Mutex
	calls map[string]map[callKey]*callState // by subject
	known int
}

// callKey names a call for a volume or snapshot: repetitions have the same. The place is
// the target path or the node.
type callKey struct{ method, place string }

type callState struct {
	since   time.Time // of the first attempt
	last    time.Time // end of the last attempt that failed
	running int
	reason  string // gRPC code of the last attempt that failed
	// silent is when the first attempt began after the last answer. The end of a caller's
	// time is no answer, and neither is that an earlier attempt still runs.
	silent   time.Time
	answered bool // an attempt failed with an answer
}

// isAnswer reports whether a failure says that the call was worked on and has ended.
func isAnswer(code codes.Code) bool {
	return code != codes.DeadlineExceeded && code != codes.Canceled && code != codes.Aborted
}

// status returns the reason of a call in the metrics, and since when.
func (s *callState) status(now time.Time) (reason string, since time.Time) {
	if s.running == 0 || s.answered && now.Sub(s.silent) < retryTime {
		return s.reason, s.since
	}
	return reasonRunning, s.silent
}

func newUnfinished() *unfinished {
	labels := []string{"method", "reason"}
	return &unfinished{
		now: time.Now, calls: map[string]map[callKey]*callState{},
		count: prometheus.NewDesc("holdfast_rpc_unfinished",
			"Calls that run (reason running), or failed and have not succeeded since (reason: the gRPC code).", labels, nil),
		oldest: prometheus.NewDesc("holdfast_rpc_oldest_seconds",
			"Seconds since the first attempt of the oldest of those calls; of reason running since its last answer.", labels, nil),
	}
}

// begin notes an attempt. The returned function ends it.
func (u *unfinished) begin(method string, request proto.Message) (end func(codes.Code)) {
	if onlyReads(method) {
		return func(codes.Code) {}
	}
	about := subject(request)
	key := callKey{method, cmp.Or(textOf(request, "target_path"), textOf(request, "node_id"))}
	u.mu.Lock()
	defer u.mu.Unlock()
	state := u.state(about, key)
	if state == nil {
		return func(codes.Code) {}
	}
	if state.running++; state.silent.IsZero() {
		state.silent = u.now()
	}
	return func(code codes.Code) { u.end(about, key, state, code) }
}

// state returns the state of a call, a new one if it was not repeated for too long; nil
// if too many are followed.
func (u *unfinished) state(about string, key callKey) *callState {
	now := u.now()
	state := u.calls[about][key]
	switch {
	case state != nil && !state.over(now):
		return state
	case state == nil && u.known >= mostUnfinished:
		return nil
	case state == nil:
		u.known++
	}
	if u.calls[about] == nil {
		u.calls[about] = map[callKey]*callState{}
	}
	state = &callState{since: now}
	u.calls[about][key] = state
	return state
}

// over reports whether a call is not repeated any more.
func (s *callState) over(now time.Time) bool { return s.running == 0 && now.Sub(s.last) > forgetAfter }

func (u *unfinished) end(about string, key callKey, state *callState, code codes.Code) {
	u.mu.Lock()
	defer u.mu.Unlock()
	state.running--
	if code != codes.OK {
		if state.last, state.reason = u.now(), code.String(); isAnswer(code) {
			state.silent, state.answered = time.Time{}, true
		}
		if state.running > 0 && state.silent.IsZero() {
			state.silent = u.now() // of the attempt that runs beside it
		}
		return
	}
	for other, known := range u.calls[about] {
		switch {
		case other != key && !key.undoes(other):
		case known.running > 0: // the attempt that runs ends it
			known.since, known.silent, known.answered = u.now(), u.now(), false
		default:
			u.drop(about, other)
		}
	}
}

func (u *unfinished) drop(about string, key callKey) {
	delete(u.calls[about], key)
	if u.known--; len(u.calls[about]) == 0 {
		delete(u.calls, about)
	}
}

// undoes reports whether a call that succeeded makes another one pointless: after
// NodeUnstageVolume nothing repeats NodeStageVolume of the volume.
func (k callKey) undoes(other callKey) bool {
	switch k.method {
	case "DeleteVolume":
		return true
	case "NodeUnstageVolume":
		return other.method == "NodeStageVolume" || other.method == "NodeExpandVolume"
	case "NodeUnpublishVolume":
		return other.method == "NodePublishVolume" && k.place == other.place
	case "ControllerUnpublishVolume":
		return other.method == "ControllerPublishVolume" && (k.place == "" || k.place == other.place)
	}
	return false
}

// Describe implements prometheus.Collector.
func (u *unfinished) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- u.count
	descriptions <- u.oldest
}

// Collect implements prometheus.Collector.
func (u *unfinished) Collect(to chan<- prometheus.Metric) {
	type kind struct{ method, reason string }
	count, oldest := map[kind]int{}, map[kind]time.Duration{}
	u.mu.Lock()
	now := u.now()
	for about, calls := range u.calls {
		for key, state := range calls {
			if state.over(now) {
				u.drop(about, key)
				continue
			}
			reason, since := state.status(now)
			of := kind{key.method, reason}
			count[of]++
			oldest[of] = max(oldest[of], now.Sub(since))
		}
	}
	u.mu.Unlock()
	for of, n := range count {
		to <- prometheus.MustNewConstMetric(u.count, prometheus.GaugeValue, float64(n), of.method, of.reason)
		to <- prometheus.MustNewConstMetric(u.oldest, prometheus.GaugeValue, oldest[of].Seconds(), of.method, of.reason)
	}
}

// stepOf names the step of a call that changes something, "" for others: CreateVolume is
// create, NodeStageVolume is stage.
func stepOf(method string) string {
	if onlyReads(method) {
		return ""
	}
	switch method {
	case "ControllerPublishVolume":
		return "attach"
	case "ControllerUnpublishVolume":
		return "detach"
	case "NodeExpandVolume":
		return "expand filesystem"
	case "CreateSnapshot":
		return "snapshot"
	case "DeleteSnapshot":
		return "delete snapshot"
	case "CreateVolumeGroupSnapshot":
		return "group snapshot"
	case "DeleteVolumeGroupSnapshot":
		return "delete group snapshot"
	case "ModifyVolumeProperties":
		return "modify"
	}
	name := strings.TrimPrefix(strings.TrimPrefix(method, "Controller"), "Node")
	return strings.ToLower(strings.TrimSuffix(name, "Volume"))
}
