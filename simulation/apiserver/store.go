package apiserver

import (
	"encoding/json"
	"reflect"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// store stores an object with a new version and notifies the watches. The error is that of an
// object that etcd does not take.
func (s *Server) store(q Request, o object, event string) error {
	o.meta()["resourceVersion"] = strconv.FormatUint(s.version+1, 10)
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if len(text) > largest {
		return apierrors.NewRequestEntityTooLargeError("etcdserver: request is too large")
	}
	s.version++
	if s.stored[q.collection()] == nil {
		s.stored[q.collection()] = map[string]object{}
	}
	old := s.stored[q.collection()][o.namespace()+"/"+o.name()]
	s.stored[q.collection()][o.namespace()+"/"+o.name()] = o
	if old != nil && !reflect.DeepEqual(old.labels(), o.labels()) {
		s.relabelled = s.version
	}
	s.changed(q, event, old, o, text)
	return nil
}

func (s *Server) remove(q Request, o object) {
	s.version++
	s.removed = s.version
	o.meta()["resourceVersion"] = strconv.FormatUint(s.version, 10)
	delete(s.stored[q.collection()], o.namespace()+"/"+o.name())
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // what came from JSON goes to JSON
	}
	s.changed(q, "DELETED", o, o, text)
}

// changed records a change and notifies the watches.
func (s *Server) changed(q Request, event string, old, o object, text []byte) {
	if s.history != nil {
		s.history.add(q.collection(), event, old, o, s.version)
		s.texts[s.version] = text
	}
	if s.observe != nil {
		s.observe(Change{Request: q, Event: event, Object: o, Text: text})
	}
	s.notify(q.collection(), event, old, o)
}
