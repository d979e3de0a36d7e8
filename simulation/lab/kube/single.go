package kube

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// singleTrouble is one trouble in a world that is well otherwise. Among others, a process that
// has missed something ends before that shows, or a user deletes what it concerns.
func (w *World) singleTrouble() error {
	troubles := []func() error{func() error { return nil }, w.missVolume}
	if w.shape.replicas > 1 && !w.shape.nodes {
		troubles = append(troubles, w.replaceLeader, w.replaceLeader)
	}
	if err := lab.Pick(w.lab, troubles...)(); err != nil {
		return err
	}
	if err := w.lab.Converge(lab.Plan{Check: w.check}, w.consistent); err != nil {
		return fmt.Errorf("the objects do not become consistent after a single trouble: %w", err)
	}
	return nil
}

// missVolume is a claim whose PersistentVolume goes before any watch shows it. The claim gets
// another one.
func (w *World) missVolume() error {
	// A claim that is served twice has to have one request: each process knows the present classes
	// and nodes after a minute.
	began := w.lab.Elapsed()
	if err := w.lab.Converge(lab.Plan{Check: w.check}, func() error {
		if w.lab.Elapsed()-began < time.Minute {
			return errors.New("the watches may be behind")
		}
		return nil
	}); err != nil {
		return err
	}
	w.lab.Note("one PersistentVolume is missed")
	w.single = unseen
	var made *corev1.PersistentVolumeClaim
	w.createClaim(func(pvc *corev1.PersistentVolumeClaim) { made = pvc })
	return w.lab.Converge(lab.Plan{Check: w.check}, func() error {
		pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, made.Namespace, made.Name)
		switch {
		case w.single != "":
			return errors.New("no PersistentVolume is created for a new claim")
		case !w.shape.immediate && !w.hasPod(made):
			return nil // it waits for a consumer again
		case !ok || pvc.Status.Phase != corev1.ClaimBound:
			return fmt.Errorf("claim %s is not bound", made.Name)
		}
		return nil
	})
}

// singleFault is the fault of a request that has none by chance.
func (w *World) singleFault(allowed []string) string {
	if fault := w.single; slices.Contains(allowed, fault) {
		w.single = ""
		return fault
	}
	return ""
}

// replaceLeader ends the leader while one of its standbys does not see a resource. A user creates
// a pod meanwhile, deletes it, and deletes its claim, or some of that.
func (w *World) replaceLeader() error {
	leader, standby := w.leader()
	pvc, ok := pick(w, claims, bound)
	if leader == nil || standby == nil || !ok {
		return nil
	}
	w.lab.Note("the leader %s is replaced while a standby does not see something", leader.name)
	blind := func() {
		resource := lab.Pick(w.lab, attachments, attachments, volumes, claims, contents)
		w.lab.Note("%s: %s", standby.name, resource)
		standby.now().sight.toggleBehind(resource)
	}
	events := []func(){
		func() { w.createPod(pvc) },
		func() { w.removePodsOf(pvc) },
		func() { w.remove(pvc) },
	}
	events = events[:1+w.lab.Choose(len(events))]
	blindBefore := w.lab.Choose(len(events) + 1)
	for i, event := range append(events, leader.crash) {
		if i == blindBefore {
			blind()
		}
		event()
		if err := w.lab.Chaos(w.lab.Choose(mostBetween), lab.Plan{Check: w.check, Idle: idle}); err != nil {
			return err
		}
	}
	if err := w.lab.Chaos(succession, lab.Plan{Check: w.check, Idle: idle}); err != nil {
		return err
	}
	if p := standby.now(); p != nil {
		p.sight.restore()
	}
	return nil
}

const (
	// mostBetween is more than the steps between two events.
	mostBetween = 12
	// succession is how many steps a standby has for taking the lease and for its first work.
	succession = 40
)

// leader returns the replica that holds the Lease, and another one; nil if there is none.
func (w *World) leader() (leader, standby *replica) {
	for _, r := range w.replicas {
		switch p := r.now(); {
		case p == nil || p.Dead():
		case p.Name() == w.holderNow():
			leader = r
		default:
			standby = r
		}
	}
	return leader, standby
}
