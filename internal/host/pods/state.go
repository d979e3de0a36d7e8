package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// The kubelet's back-off of containers that end again and again.
const (
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	// steady is how long a container runs before its failures are forgotten.
	steady = 10 * time.Minute
)

// action is the next step towards the desired state of a pod.
type action string

const (
	actNone    action = "nothing"
	actMount   action = "mount"
	actStart   action = "start"
	actStop    action = "stop"
	actUnmount action = "unmount"
	actRemove  action = "remove"
)

// containerView is the observed state of a container.
type containerView struct {
	Name  string
	Phase workload.ShimPhase
	// Alive: its shim runs, independent of the state that it recorded.
	Alive bool
	Ended *workload.Ended
	Pause time.Duration
	// OtherBoot: the attempt is of a boot before this one.
	OtherBoot bool
}

// view is everything that decides.
type view struct {
	// Deleting: the object is being deleted, does not exist, or has another pod's UID.
	Deleting bool
	// Draining: the machine is shutting down. The object stays.
	Draining bool
	// Finished: the pod's phase is Succeeded or Failed, for ever.
	Finished bool
	// Holder: another program runs the pod; this host only mounts its volumes.
	Holder             bool
	Policy             corev1.RestartPolicy
	Mounted, Unmounted bool
	Init, Main         []containerView
	Now                time.Time
}

// decision is the action to take now, and the delay until the next one.
type decision struct {
	Do    action
	Start []string
	// BackOff has the containers that wait before they are started again.
	BackOff map[string]time.Duration
	Again   time.Duration
}

// next decides on the action. It has all decisions of the controller; the rest
// of the package executes them.
func next(v view) decision {
	switch {
	case (v.Deleting || v.Draining) && v.alive():
		return decision{Do: actStop}
	case (v.Deleting || v.Draining) && !v.Unmounted:
		return decision{Do: actUnmount}
	case v.Deleting:
		return decision{Do: actRemove}
	case v.Draining:
		return decision{Do: actNone}
	case v.endPhase() != "" && v.alive():
		return decision{Do: actStop}
	case v.endPhase() != "" && !v.Unmounted:
		return decision{Do: actUnmount}
	case v.endPhase() != "":
		return decision{Do: actNone}
	case v.Holder && !v.Mounted:
		return decision{Do: actMount}
	case v.Holder:
		return decision{Do: actNone}
	}
	d := v.due()
	if len(d.Start) > 0 {
		d.Do = actStart
		if !v.Mounted {
			d.Do = actMount
		}
	}
	return d
}

func (v view) alive() bool {
	for _, list := range [][]containerView{v.Init, v.Main} {
		for _, c := range list {
			if c.Alive {
				return true
			}
		}
	}
	return false
}

// due finds the containers to start: the first init container that is not
// done, or the others at once.
func (v view) due() decision {
	d := decision{Do: actNone, BackOff: map[string]time.Duration{}}
	for _, c := range v.Init {
		if !v.initDone(c) {
			v.consider(&d, c, c.succeeded())
			return d
		}
	}
	for _, c := range v.Main {
		if v.shouldRun(c) {
			v.consider(&d, c, false)
		}
	}
	return d
}

// initDone: after a boot, the pod's init containers run again, as in a new sandbox of
// the kubelet.
func (v view) initDone(c containerView) bool {
	if !c.succeeded() {
		return false
	}
	return !c.OtherBoot || v.Policy == corev1.RestartPolicyNever || v.mainRan()
}

// mainRan reports whether a container of this boot runs or ran: then the init
// containers have completed.
func (v view) mainRan() bool {
	for _, c := range v.Main {
		if c.Phase != "" && !c.OtherBoot {
			return true
		}
	}
	return false
}

func (c containerView) succeeded() bool {
	return c.Phase == workload.Exited && !c.Alive && c.Ended != nil && c.Ended.ExitCode == 0
}

// shouldRun reports whether a main container is to run.
func (v view) shouldRun(c containerView) bool {
	if c.Phase != workload.Exited || c.Ended == nil {
		return true
	}
	return v.Policy == corev1.RestartPolicyAlways || v.Policy == corev1.RestartPolicyOnFailure && c.Ended.ExitCode != 0
}

// consider adds a container that is to run to those to start, or to those that wait.
func (v view) consider(d *decision, c containerView, atOnce bool) {
	if c.Alive {
		return
	}
	if c.Phase == workload.Exited && c.Ended != nil && !atOnce && !c.OtherBoot {
		pause := pauseBefore(*c.Ended, c.Pause)
		// A clock that was set back must not make it longer.
		if wait := min(c.Ended.Finished.Add(pause).Sub(v.Now), pause); wait > 0 {
			d.BackOff[c.Name] = pause
			if d.Again == 0 || wait < d.Again {
				d.Again = wait
			}
			return
		}
	}
	d.Start = append(d.Start, c.Name)
}

// pauseBefore is the back-off of a container that ended: the one decided at its start,
// unless it ran long.
func pauseBefore(ended workload.Ended, decided time.Duration) time.Duration {
	if ended.Finished.Sub(ended.Started) >= steady {
		return 0
	}
	return decided
}

// pauseAfter is how long the next attempt will wait, after one that waited so long.
func pauseAfter(waited time.Duration) time.Duration {
	if waited == 0 {
		return firstPause
	}
	return min(2*waited, longestPause)
}

// endPhase is the phase of a pod that is finished, "" of one that is not. A pod does not
// finish during a drain: the next host decides.
func (v view) endPhase() corev1.PodPhase {
	switch {
	case v.Holder:
		return ""
	case v.Finished:
		return corev1.PodFailed // the object says which
	case v.Draining:
		return ""
	}
	for _, c := range v.Init {
		if c.Phase == workload.Exited && !c.Alive && !c.succeeded() && v.Policy == corev1.RestartPolicyNever {
			return corev1.PodFailed
		}
		if !v.initDone(c) {
			return ""
		}
	}
	phase := corev1.PodSucceeded
	for _, c := range v.Main {
		switch {
		case c.Alive || v.shouldRun(c):
			return ""
		case c.Ended.ExitCode != 0:
			phase = corev1.PodFailed
		}
	}
	return phase
}
