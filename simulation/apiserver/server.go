package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Request is one request as a reaction sees it.
type Request struct {
	Verb            string // get list watch create update patch delete
	Group, Resource string
	Subresource     string // "" or "status"
	Namespace, Name string
	Body            []byte
	// Fault is for a world's hooks: what Before has chosen for After.
	Fault string
	// Process is that of the Env whose clients sent the request; "" for the test's.
	Process       string
	version       string
	patchType     types.PatchType
	selector      string
	only          string // name of the field selector metadata.name, the only one that all kinds have
	page          page
	since         uint64
	initialEvents bool
	cached        bool            // a get that any state of the past may answer (resourceVersion=0)
	caller        context.Context //nolint:containedctx // of the client within the process; nil for others
}

func (r Request) collection() string { return r.Group + "/" + r.Resource }

// Server is an API server in memory: real HTTP and JSON, resourceVersions,
// optimistic locking, finalizers, the status subresource, watches. It knows no
// admission and no defaults, and validates sizes and the values of labels alone. New serves
// it over HTTP; NewServer is for callers within the process.
type Server struct {
	test    context.Context // ends with the test
	mu      sync.Mutex
	version uint64
	// removed is when something was last removed, and relabelled when labels last
	// changed: a watch cannot begin before the former, and one with a label selector not
	// before the latter. What left a selection is not kept to replay.
	removed, relabelled uint64
	stored              map[string]map[string]object // by collection, by namespace/name
	// texts are the JSON of what a version made of an object, which is the same for its answers,
	// events and observers. It has the versions of history; none without it.
	texts   map[uint64][]byte
	watches map[string][]*watcher
	react   []func(Request) error
	lose    []func(Request) error
	writes  []Request
	absent  map[string]bool // what Unserve took away
	// known are the kinds of Put and Remove.
	known *runtime.Scheme
	// before and after are those of Hooks.
	before, after func(*Request) error
	// observe is called for each change, under the lock; it may be nil.
	observe func(Change)
	// deliver is called before a watcher gets events; it may be nil.
	deliver func(context.Context, Request) Delivery
	// stale returns how many changes the answer to a read from the cache is behind; nil for none.
	stale   func(Request) uint64
	history *history // nil for a server that keeps none
	skew    time.Duration
}

func newServer(test context.Context) *Server {
	return &Server{
		test:    test,
		version: 1, stored: map[string]map[string]object{}, watches: map[string][]*watcher{}, absent: map[string]bool{},
	}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := parse(r)
	if err != nil {
		fail(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if request.Resource == "" {
		s.discover(w, request)
		return
	}
	err = s.reaction(request)
	if err == nil && s.before != nil {
		err = s.before(&request)
	}
	if err != nil {
		fail(w, err)
		return
	}
	if request.Verb == "watch" {
		s.watch(w, r, request)
		return
	}
	answer, err := s.answer(request)
	if err == nil {
		err = s.lost(request)
	}
	if err == nil && s.after != nil {
		err = s.after(&request)
	}
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if text := s.textOf(answer); text != nil {
		_, _ = w.Write(append(text[:len(text):len(text)], '\n'))
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// parse reads /api/v1/… and /apis/GROUP/VERSION/[namespaces/NS/]RESOURCE[/NAME[/SUB]].
func parse(r *http.Request) (Request, error) {
	steps := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var q Request
	switch {
	case len(steps) >= 2 && steps[0] == "api":
		q.version, steps = steps[1], steps[2:]
	case len(steps) >= 3 && steps[0] == "apis":
		q.Group, q.version, steps = steps[1], steps[2], steps[3:]
	default:
		return q, fmt.Errorf("no such path %s", r.URL.Path)
	}
	if len(steps) >= 3 && steps[0] == "namespaces" {
		q.Namespace, steps = steps[1], steps[2:]
	}
	for i, target := range []*string{&q.Resource, &q.Name, &q.Subresource} {
		if i < len(steps) {
			*target = steps[i]
		}
	}
	query := r.URL.Query()
	q.selector = query.Get("labelSelector")
	if only, ok := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name="); ok {
		q.only = only // other selectors, such as those of pods, select all here
	}
	q.page = pageOf(query)
	q.since, _ = strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	q.cached = query.Get("resourceVersion") == "0"
	q.caller, _ = r.Context().Value(callerKey{}).(context.Context)
	q.initialEvents = query.Get("sendInitialEvents") == "true"
	q.patchType = types.PatchType(r.Header.Get("Content-Type"))
	q.Verb = verb(r.Method, q.Name, query.Get("watch"))
	var err error
	q.Process, _ = strings.CutPrefix(r.UserAgent(), processAgent)
	if q.Process == r.UserAgent() {
		q.Process = ""
	}
	if q.Body, err = io.ReadAll(r.Body); err == nil {
		q.Body, err = plain(q.Body)
	}
	return q, err
}

func verb(method, name, watch string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	switch {
	case watch == "true" || watch == "1":
		return "watch"
	case name == "":
		return "list"
	}
	return "get"
}

// reaction lets the tests have their say, and records what would change something.
func (s *Server) reaction(q Request) error {
	s.mu.Lock()
	reactions := slices.Clone(s.react)
	if s.isAbsent(q) {
		s.mu.Unlock()
		return apierrors.NewNotFound(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name)
	}
	s.mu.Unlock()
	if s.test.Err() != nil {
		reactions = nil // controllers that stop after the test may still write
	}
	for _, react := range reactions {
		if err := react(q); err != nil {
			return err
		}
	}
	if q.Verb == "create" || q.Verb == "update" || q.Verb == "patch" || q.Verb == "delete" {
		s.mu.Lock()
		s.writes = append(s.writes, q)
		s.mu.Unlock()
	}
	return nil
}

// lost returns the error that replaces the answer to a request which had its
// effect.
func (s *Server) lost(q Request) error {
	s.mu.Lock()
	lose := slices.Clone(s.lose)
	s.mu.Unlock()
	if s.test.Err() != nil {
		return nil //nolint:nilerr // the test is over: its client gets what there is
	}
	for _, f := range lose {
		if err := f(q); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) answer(q Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch q.Verb {
	case "list":
		return s.list(q), nil
	case "get":
		return s.find(q)
	case "create":
		return s.create(q)
	case "update":
		return s.update(q)
	case "patch":
		return s.patch(q)
	}
	return s.delete(q)
}

// currentVersion grows with each write.
func (s *Server) currentVersion() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// find returns the object of a request. A kind without a status has no such subresource.
func (s *Server) find(q Request) (object, error) {
	if q.Verb == "get" && q.cached && s.stale != nil && s.history != nil {
		if found, ok := s.history.at(q, s.version-min(s.stale(q), s.version)); ok {
			return found, nil
		}
	}
	found, ok := s.stored[q.collection()][q.Namespace+"/"+q.Name]
	if !ok || q.Subresource == "status" && !hasStatus(q.Resource) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name)
	}
	return found, nil
}

func (s *Server) list(q Request) any {
	items := []object{}
	for _, o := range s.stored[q.collection()] {
		if q.selects(o) {
			items = append(items, o)
		}
	}
	slices.SortFunc(items, func(a, b object) int { return strings.Compare(a.namespace()+"/"+a.name(), b.namespace()+"/"+b.name()) })
	items, more := q.page.of(items)
	// Without a kind the client assumes the requested one.
	return map[string]any{
		"items":    items,
		"metadata": map[string]any{"resourceVersion": strconv.FormatUint(s.version, 10), "continue": more},
	}
}

func groupVersion(q Request) string {
	return schema.GroupVersion{Group: q.Group, Version: q.version}.String()
}

func (s *Server) create(q Request) (object, error) {
	if q.Resource == "selfsubjectrulesreviews" && s.history != nil { // every process of a world has every right
		all := []any{"*"}
		return object{"status": map[string]any{"resourceRules": []any{
			map[string]any{"verbs": all, "apiGroups": all, "resources": all},
		}}}, nil
	}
	if q.Subresource != "" { // such as an eviction or a SelfSubjectAccessReview's answer
		return decode(q.Body)
	}
	o, err := decode(q.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.meta()["namespace"] = q.Namespace
	if q.Namespace == "" {
		delete(o.meta(), "namespace")
	}
	if o.name() == "" {
		o.meta()["name"] = fmt.Sprintf("%s%05d", o.meta().text("generateName"), s.version)
	}
	q.Name = o.name()
	if _, err := s.find(q); err == nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name)
	}
	if o.meta().text("uid") == "" {
		o.meta()["uid"] = fmt.Sprintf("uid-%s-%d", q.Name, s.version)
	}
	o.meta()["creationTimestamp"] = s.now()
	if err := validate(q, o); err != nil {
		return nil, err
	}
	return o, s.store(q, o, "ADDED")
}

func (s *Server) update(q Request) (object, error) {
	o, err := decode(q.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	old, err := s.find(q)
	if err != nil {
		return nil, err
	}
	return s.change(q, old, o)
}

func (s *Server) patch(q Request) (object, error) {
	old, err := s.find(q)
	if err != nil {
		return nil, err
	}
	before := s.encode(old)
	var after []byte
	if q.patchType == types.JSONPatchType {
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(q.Body); err == nil {
			after, err = patch.Apply(before)
		}
	} else {
		after, err = jsonpatch.MergePatch(before, q.Body)
	}
	if err != nil { // the API server answers 422 for a failed test
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch",
			schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name, err.Error(), 0, false)
	}
	o, err := decode(after)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s.change(q, old, o)
}

// change is what updates and patches come to.
func (s *Server) change(q Request, old, o object) (object, error) {
	if version := o.version(); version != 0 && version != old.version() {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name,
			fmt.Errorf("the object has been modified; it is at version %d, not %d", old.version(), version))
	}
	if uid := o.meta().text("uid"); uid != "" && uid != old.meta().text("uid") {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name, fmt.Errorf("uid differs"))
	}
	o.keep(old, q.Subresource, strings.HasSuffix(q.Group, "snapshot.storage.k8s.io"), hasStatus(q.Resource))
	if old.meta().text("deletionTimestamp") != "" && o.addsFinalizers(old) {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name,
			"metadata.finalizers: no new finalizers can be added if the object is being deleted", 0, false)
	}
	o["kind"], o["apiVersion"] = old["kind"], old["apiVersion"]
	if o.sameAs(old) {
		return old, nil // a write that changes nothing makes no version
	}
	if o.meta().text("deletionTimestamp") != "" && o.finalizers() == 0 {
		s.remove(q, o)
		return o, nil
	}
	if err := validate(q, o); err != nil {
		return nil, err
	}
	return o, s.store(q, o, "MODIFIED")
}

// hasStatus reports whether a kind has a status, which an ordinary write leaves unchanged.
func hasStatus(resource string) bool {
	return slices.Contains([]string{
		"persistentvolumes", "persistentvolumeclaims", "volumeattachments", "nodes", "pods",
		"volumesnapshots", "volumesnapshotcontents", "volumegroupsnapshots", "volumegroupsnapshotcontents",
	}, resource)
}

func (s *Server) delete(q Request) (any, error) {
	old, err := s.find(q)
	if err != nil {
		return nil, err
	}
	var options metav1.DeleteOptions
	_ = json.Unmarshal(q.Body, &options)
	if p := options.Preconditions; p != nil {
		if p.UID != nil && string(*p.UID) != old.meta().text("uid") {
			return nil, apierrors.NewConflict(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name, fmt.Errorf("uid differs"))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != old.meta().text("resourceVersion") {
			return nil, apierrors.NewConflict(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name, fmt.Errorf("resourceVersion differs"))
		}
	}
	if old.finalizers() == 0 {
		s.remove(q, old.clone())
		return metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	if old.meta().text("deletionTimestamp") == "" {
		o := old.clone()
		o.meta()["deletionTimestamp"] = s.now()
		return o, s.store(q, o, "MODIFIED")
	}
	return old, nil
}

// largest is how many bytes etcd takes of one object (--max-request-bytes).
const largest = 1536 << 10

// validate is the API server's answer to an object with an invalid label.
func validate(q Request, o object) error {
	for key, value := range o.labels() {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, q.Verb,
				schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Name, fmt.Sprintf("metadata.labels[%s]: %v", key, problems), 0, false)
		}
	}
	return nil
}

func fail(w http.ResponseWriter, err error) {
	if broken, ok := w.(interface{ abort(error) }); ok && errors.Is(err, ErrConnection) {
		broken.abort(err)
		return
	}
	answer, ok := err.(apierrors.APIStatus)
	if !ok {
		answer = apierrors.NewInternalError(err)
	}
	text := answer.Status()
	text.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	if text.Details != nil && text.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(text.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(int(text.Code))
	_ = json.NewEncoder(w).Encode(text)
}

// resources are those of the groups whose discovery Set reads.
func resources(group string) []string {
	return map[string][]string{
		"storage.k8s.io": {
			"csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments", "volumeattributesclasses",
		},
		"snapshot.storage.k8s.io":      {"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"},
		"groupsnapshot.storage.k8s.io": {"volumegroupsnapshots", "volumegroupsnapshotcontents", "volumegroupsnapshotclasses"},
		"gateway.networking.k8s.io":    {"referencegrants"},
	}[group]
}

// isAbsent reports whether a group, its version, or a resource of that is not served.
func (s *Server) isAbsent(q Request) bool {
	version := q.Group + "/" + q.version
	return s.absent[q.Group] || s.absent[version] || s.absent[version+"/"+q.Resource]
}

// discover lists the resources of a group's version.
func (s *Server) discover(w http.ResponseWriter, q Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAbsent(q) {
		fail(w, apierrors.NewNotFound(schema.GroupResource{Group: q.Group}, q.version))
		return
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion(q)}
	for _, q.Resource = range resources(q.Group) {
		if !s.isAbsent(q) {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: q.Resource})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}
