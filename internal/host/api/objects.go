package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	internalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// list is the answer with many objects.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []store.Object `json:"items"`
}

// objects serves everything that has a path as in the Kubernetes API.
func (s *Server) objects(w http.ResponseWriter, r *http.Request) {
	t, ok := parsePath(r.URL.Path)
	kind, known := t.kind()
	var err error
	switch {
	case !ok || !known || t.namespace != "" && !kind.Namespaced:
		err = refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "this host has nothing at %s", r.URL.Path)
	case t.subresource == "log" && kind.Resource == "pods" && t.namespace != "":
		if err = onlyGet(r); err == nil {
			err = s.logs(w, r, t) //nolint:contextcheck // it is the request's
		}
	case t.subresource != "":
		err = refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "%s have no %s here", t.resource, t.subresource)
	case kind.Namespaced && t.name != "" && t.namespace == "":
		err = badRequest("%s are in namespaces: use %s", t.resource, pathOf(kind, "NAMESPACE", t.name))
	case r.Method == http.MethodGet:
		err = s.read(w, r, t, kind) //nolint:contextcheck // it is the request's
	case r.Method == http.MethodDelete && t.name != "" && kind.Resource != "events":
		err = s.remove(w, r, t, kind)
	default:
		err = refuse(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"%s is not possible for %s: objects are written with POST %sapply", r.Method, r.URL.Path, ownPrefix)
	}
	if err != nil {
		s.answerError(w, r, err)
	}
}

func onlyGet(r *http.Request) error {
	if r.Method == http.MethodGet {
		return nil
	}
	return refuse(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "%s is not possible for %s",
		r.Method, r.URL.Path)
}

// read answers with an object, a list, or a watch.
func (s *Server) read(w http.ResponseWriter, r *http.Request, t target, kind store.Kind) error {
	query := r.URL.Query()
	desired, err := parseFilter(t, kind, query)
	if err != nil {
		return err
	}
	if watch := query.Get("watch"); watch == "1" || watch == "true" {
		return s.watch(w, r, kind, desired)
	}
	from := s.source(kind)
	if t.name == "" {
		items, version, err := from.list(desired)
		if err != nil {
			return err
		}
		s.answer(w, http.StatusOK, list{
			TypeMeta: metav1.TypeMeta{Kind: kind.Kind + "List", APIVersion: kind.GroupVersion().String()},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)}, Items: items,
		})
		return nil
	}
	object, err := from.get(desired)
	if err != nil {
		return err
	}
	if object == nil {
		return notFound(kind, t.name)
	}
	s.answer(w, http.StatusOK, object)
	return nil
}

func notFound(kind store.Kind, name string) error {
	err := refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "%s %q not found", kind.Resource, name)
	if known, ok := errors.AsType[*statusError](err); ok {
		known.status.Details = &metav1.StatusDetails{Name: name, Group: kind.Group, Kind: kind.Resource}
	}
	return err
}

// remove begins the deletion of an object.
func (s *Server) remove(w http.ResponseWriter, r *http.Request, t target, kind store.Kind) error {
	options, err := s.deleteOptions(w, r)
	if err != nil {
		return err
	}
	options.Abandon = r.URL.Query().Get(abandonQuery) == "true"
	key := t.name
	if kind.Namespaced {
		key = store.Key(t.namespace, t.name)
	}
	deleted, err := s.options.Host.DeleteObject(r.Context(), kind, key, options)
	if errors.Is(err, ErrNotFound) {
		return notFound(kind, t.name)
	}
	if err != nil {
		return err
	}
	// 202: the deletion continues by itself; the causes say why it is not complete.
	code := http.StatusOK
	if !deleted.Gone {
		code = http.StatusAccepted
	}
	details := &metav1.StatusDetails{Name: t.name, Group: kind.Group, Kind: kind.Resource}
	for _, text := range deleted.Waits {
		details.Causes = append(details.Causes, metav1.StatusCause{Type: causeWaits, Message: text})
	}
	s.answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Details: details,
	})
	return nil
}

// abandonQuery is this host's own: DeleteOptions of Kubernetes has no such field.
const abandonQuery = "abandon"

// causeWaits is the type of the causes of an incomplete deletion, in the details of a
// Status.
const causeWaits = metav1.CauseType("Waits")

// deleteOptions reads the body of a deletion, and refuses options that this host lacks.
func (s *Server) deleteOptions(w http.ResponseWriter, r *http.Request) (DeleteOptions, error) {
	data, err := body(w, r)
	if err != nil || len(data) == 0 {
		return DeleteOptions{}, err
	}
	// Clients of Kubernetes send it in the form in which they send objects.
	kind := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	var given metav1.DeleteOptions
	if _, _, err := internalversion.Codecs.UniversalDeserializer().Decode(data, &kind, &given); err != nil {
		return DeleteOptions{}, badRequest("the body is not a DeleteOptions: %v", err)
	}
	switch {
	case len(given.DryRun) > 0:
		return DeleteOptions{}, badRequest("dryRun: a deletion cannot be tried here")
	case given.PropagationPolicy != nil && *given.PropagationPolicy == metav1.DeletePropagationOrphan:
		return DeleteOptions{}, badRequest("propagationPolicy Orphan is not possible here")
	}
	var options DeleteOptions
	if conditions := given.Preconditions; conditions != nil {
		options.UID = string(value(conditions.UID))
		options.ResourceVersion = value(conditions.ResourceVersion)
	}
	return options, nil
}

func value[T string | types.UID](pointer *T) T {
	if pointer == nil {
		return ""
	}
	return *pointer
}

// body reads all of a request's body within its limits.
func body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(timeout(bodyLimit)); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r.Body)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, refuse(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			"the request has more than %d bytes", maximumBody)
	}
	if err != nil {
		return nil, badRequest("the request did not arrive whole: %v", err)
	}
	return data, control.SetReadDeadline(time.Time{})
}
