package status

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/why"
	"github.com/holdfast-csi/holdfast/internal/why/hostreader"
)

// reader is why.Reader with the mirror's objects; what the mirror does not have is read
// from the source.
type reader struct {
	why.Reader
	mirror *Mirror
}

// hostReader is a reader of a host. Steps and drivers are in the mirror.
type hostReader struct {
	reader
	host *Host
}

// reader returns what why.Ask reads of a source.
func (m *Mirror) reader(source Source) why.Reader {
	cached := reader{Reader: source, mirror: m}
	if host, ok := source.(*Host); ok {
		return hostReader{cached, host}
	}
	return cached
}

// Calls implements why.Host.
func (r hostReader) Calls(ctx context.Context, kind, key string) ([]why.Call, error) {
	if calls := hostreader.Unfinished(r.mirror.stepsOf(kind, key, "")); len(calls) > 0 {
		return calls, nil
	}
	return r.host.Work(ctx, kind, key)
}

// Registered implements why.Host.
func (r hostReader) Registered(context.Context) (names []string, err error) {
	for _, driver := range r.mirror.knownDrivers() {
		if driver.Registered {
			names = append(names, driver.Name)
		}
	}
	return names, nil
}

// Mounts implements why.Host.
func (r hostReader) Mounts(ctx context.Context, pod string) ([]why.Mount, error) {
	return r.host.Mounts(ctx, pod)
}

// Cached implements why.Cache.
func (r reader) Cached(kind why.Kind, namespace, name string) (object any, ok bool) {
	r.mirror.mu.RLock()
	defer r.mirror.mu.RUnlock()
	t := r.mirror.tables[kind.Name()]
	if t == nil || !t.synced {
		return nil, false
	}
	if found := t.objects[joined(namespace, name)]; found != nil {
		return found, true
	}
	return nil, true
}

// CachedList implements why.Cache. Events are found by the object that they are about.
func (r reader) CachedList(kind why.Kind, namespace, selector string) (objects []any, ok bool) {
	r.mirror.mu.RLock()
	defer r.mirror.mu.RUnlock()
	t := r.mirror.tables[kind.Name()]
	switch {
	case t == nil || !t.synced:
		return nil, false
	case kind.Name() == kindEvent:
		of, ok := selected(namespace, selector)
		for _, event := range r.mirror.events[of] {
			objects = append(objects, event)
		}
		return objects, ok
	case selector != "":
		return nil, false
	}
	for _, object := range t.objects {
		if namespace == "" || object.GetNamespace() == namespace {
			objects = append(objects, object)
		}
	}
	return objects, true
}

// selected returns the object that a field selector of events names. Those of objects
// without a namespace are in the namespace default.
func selected(namespace, selector string) (of about, ok bool) {
	var name string
	for field := range strings.SplitSeq(selector, ",") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "involvedObject.kind":
			of.kind = value
		case "involvedObject.name":
			name = value
		default:
			return about{}, false
		}
	}
	switch of.kind {
	case kindVolume, kindContent, kindAttachment, kindNode:
		namespace = corev1.NamespaceAll
	}
	of.key = joined(namespace, name)
	return of, of.kind != "" && name != ""
}
