package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	controllerslease "github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// Faults of requests to the API server.
const (
	tooMany    = "429"
	internal   = "500 before the effect"
	refused    = "no connection"
	conflict   = "another writer first"
	forbidden  = "refused by admission"
	lost       = "answer lost"
	failed     = "500 after the effect"
	taken      = "500 after the effect, and an administrator takes it"
	unseen     = "an administrator deletes it, and no watch shows it"
	late       = "answer late"
	keptFirst  = "an administrator retains it first, answer late"
	oneEvent   = "one event"
	breakWatch = "watch broken"
)

// requestTime is how long the API server works on a request whose client left.
const requestTime = 65 * time.Second

func isWrite(verb string) bool {
	return verb == "create" || verb == "update" || verb == "patch" || verb == "delete"
}

func name(q apiserver.Request) string {
	if q.Namespace == "" {
		return q.Name
	}
	return q.Namespace + "/" + q.Name
}

func kind(q apiserver.Request) string {
	text := q.Verb + " " + q.Resource
	if q.Subresource != "" {
		text += "/" + q.Subresource
	}
	return text
}

func (w *World) process(name string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes[name]
}

// before is called when a request has arrived at the API server. It waits until the request
// may have its effect.
func (w *World) before(q *apiserver.Request) error {
	if isWrite(q.Verb) && bytes.Contains(q.Body, []byte(marker)) {
		w.violate("%s %s has a secret: %s", kind(*q), name(*q), q.Body)
	}
	p := w.process(q.Process)
	switch {
	case p == nil:
		return nil
	case p.Dead(), p.sight.isCut(q.Resource):
		return apiserver.ErrConnection
	case q.Verb == "list", q.Verb == "watch", q.Resource == "events", strings.HasPrefix(q.Resource, "selfsubject"):
		return nil
	}
	if q.Resource == leases {
		q.Body = shifted(q.Body, time.Duration(p.clock.Load()))
	}
	if isWrite(q.Verb) && q.Resource != leases {
		w.checkLeader(p, kind(*q)+" "+name(*q))
	}
	began := time.Now()
	fault, err := p.Pass(context.Background(), lab.Step{Kind: kind(*q), Object: name(*q), Faults: w.faultsOf(q)})
	if err != nil || time.Since(began) > requestTime && !p.paused.Load() {
		return apiserver.ErrConnection
	}
	if fault == "" {
		fault = w.singleFault(w.faultsOf(q))
	}
	q.Fault = fault
	if q.Resource != leases && q.Resource != configMaps {
		w.setSubject(name(*q) + nameIn(q.Body))
	}
	if fault == "" {
		w.learns(p, q)
	}
	return w.injectBefore(q)
}

// nameIn is the name of the object in the body of a request.
func nameIn(body []byte) string {
	var o struct{ Metadata struct{ Name string } }
	_ = json.Unmarshal(body, &o) // the world's own process has written it
	return o.Metadata.Name
}

func (w *World) faultsOf(q *apiserver.Request) []string {
	faults := []string{tooMany, internal, refused}
	if !isWrite(q.Verb) {
		if q.Resource == volumes || q.Resource == contents {
			faults = append(faults, keptFirst)
		}
		return faults
	}
	faults = append(faults, lost, failed, late)
	if q.Verb == "update" || q.Verb == "patch" {
		faults = append(faults, conflict)
	}
	if q.Verb == "create" && q.Resource != leases && q.Resource != configMaps {
		faults = append(faults, forbidden)
	}
	if q.Verb == "create" && q.Resource == volumes {
		faults = append(faults, taken, unseen)
	}
	return faults
}

func (w *World) injectBefore(q *apiserver.Request) error {
	resource := schema.GroupResource{Group: q.Group, Resource: q.Resource}
	switch q.Fault {
	case tooMany:
		return apierrors.NewTooManyRequests("the simulated server is busy", 1)
	case internal:
		return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	case refused:
		return apiserver.ErrConnection
	case forbidden:
		return apierrors.NewForbidden(resource, q.Name, errors.New("a webhook denied the request"))
	case conflict:
		w.touch(q.Resource, q.Namespace, q.Name)
	case keptFirst:
		w.retainNow(q.Resource, q.Name)
	}
	return nil
}

// after is called when a request had its effect.
func (w *World) after(q *apiserver.Request) error {
	p := w.process(q.Process)
	if p == nil {
		return nil
	}
	if q.Resource == leases {
		seen, _ := p.sawHolder.Load().(string)
		if holder := w.process(w.holder); holder != nil && q.Verb == "create" && (seen != w.holder || p.outrun.Load()) {
			holder.outrun.Store(true)
		}
		w.holder = w.holderNow()
		if !q.Left() {
			p.sawHolder.Store(w.holder)
		}
	}
	if q.Verb == "get" && !q.Left() {
		w.retained.reads(p, about(q.Resource, q.Name), w.lab.Steps())
	}
	switch q.Fault {
	case lost:
		return apiserver.ErrConnection
	case failed:
		return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	case taken:
		w.takeAway(nameIn(q.Body))
		return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	case unseen:
		w.removeUnseen(nameIn(q.Body))
	case late, keptFirst:
		if _, err := p.Pass(context.Background(), lab.Step{Kind: "answer of " + kind(*q), Object: name(*q)}); err != nil {
			return apiserver.ErrConnection
		}
	}
	if p.Dead() {
		return apiserver.ErrConnection
	}
	return nil
}

// deliver waits until a watcher may get its events.
func (w *World) deliver(ctx context.Context, q apiserver.Request) apiserver.Delivery {
	p := w.process(q.Process)
	if p == nil {
		return apiserver.Delivery{}
	}
	if !p.sight.await(ctx, q.Resource) {
		return apiserver.Delivery{Break: true}
	}
	fault, err := p.Pass(ctx, lab.Step{Kind: "watch", Object: q.Resource + q.Selector(), Faults: []string{oneEvent, breakWatch}})
	switch {
	case err != nil:
		return apiserver.Delivery{Break: true}
	case fault == oneEvent:
		return apiserver.Delivery{Most: 1}
	}
	return apiserver.Delivery{Break: fault == breakWatch}
}

// checkLeader records a violation if a process begins an effect although another process
// holds the lease. One that was paused cannot know that.
func (w *World) checkLeader(p *process, what string) {
	if p.node != "" {
		return // it needs no lease for its own node
	}
	if holder := w.holderNow(); holder != "" && holder != p.Name() && !p.paused.Load() && !p.outrun.Load() {
		w.violate("two leaders: %s begins %s, and %s holds the lease", p.Name(), what, holder)
	}
}

// holderNow is the process that the Lease names; "" for none.
func (w *World) holderNow() string {
	held, ok := get[*coordinationv1.Lease](w.mirror, leases, system, controllerslease.Name(driverName))
	if !ok || held.Spec.HolderIdentity == nil {
		return ""
	}
	return *held.Spec.HolderIdentity
}

// observe is called for each change of an object.
func (w *World) observe(c apiserver.Change) {
	if err := w.mirror.observe(c); err != nil {
		w.violate("%v", err)
	}
	for _, m := range w.managers {
		m.wake()
	}
	w.observeVolume(c)
}

// shifted returns a Lease with the times of another clock.
func shifted(body []byte, by time.Duration) []byte {
	held := &coordinationv1.Lease{}
	if by == 0 || json.Unmarshal(body, held) != nil || held.Spec.RenewTime == nil {
		return body
	}
	at := metav1.NewMicroTime(held.Spec.RenewTime.Add(by))
	held.Spec.RenewTime = &at
	text, err := json.Marshal(held)
	if err != nil {
		return body
	}
	return text
}
