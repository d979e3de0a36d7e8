package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// ownPrefix is the path of resources that a cluster lacks.
const ownPrefix = "/apis/holdfast.dev/v1/"

// JournalAnswer is the journal's answer: of one object its story, and otherwise
// the entries after a sequence number.
type JournalAnswer struct {
	journal.Story
	Entries []journal.Entry `json:"entries,omitempty"`
	// Sequence is where to continue from.
	Sequence uint64 `json:"sequence"`
}

// Version describes the host that answers.
type Version struct {
	GitVersion string `json:"gitVersion"`
	Platform   string `json:"platform"`
	GoVersion  string `json:"goVersion"`
}

func (s *Server) routes() {
	own := func(pattern string, do func(http.ResponseWriter, *http.Request) error) {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := do(w, r); err != nil {
				s.answerError(w, r, err)
			}
		})
	}
	own("POST "+ownPrefix+"apply", s.apply)
	own("POST "+ownPrefix+"copy", s.copy)
	own("POST "+ownPrefix+"exec", s.exec)
	own("GET "+ownPrefix+"goroutines", s.goroutines)
	own("GET "+ownPrefix+"journal", s.journal)
	own("GET "+ownPrefix+"drivers", s.drivers)
	own("GET "+ownPrefix+"pools", s.pools)
	own("GET "+ownPrefix+"state", s.state)
	own("GET "+ownPrefix+"activity", s.activity)
	own("GET "+ownPrefix+"progress", s.progress)
	own("GET "+ownPrefix+"stats", about(s, "claim", "default/data", s.options.Host.Stats))
	own("GET "+ownPrefix+"mounts", about(s, "pod", "default/web", s.options.Host.Mounts))
	own("POST "+ownPrefix+"holds", s.hold)
	own("DELETE "+ownPrefix+"holds/{namespace}/{name}", s.release)
	own("POST "+ownPrefix+"drain", s.drain)
	own("GET "+ownPrefix+"version", s.version)
	own("GET /version", s.version)
	for _, path := range []string{ownPrefix + "healthz", "/healthz", "/livez", "/readyz"} {
		own("GET "+path, s.health)
	}
	own("GET /api", s.coreVersions)
	own("GET /apis", s.groups)
	own("GET /api/{version}", s.resources)
	own("GET /apis/{group}/{version}", s.resources)
	if s.options.Status != nil {
		s.mux.HandleFunc("GET "+statusPath, s.status)
	}
	s.mux.HandleFunc("/", s.objects)
}

// statusPath is where the status page is.
const statusPath = "/status/"

// status serves the status page. Its streams end when the host does.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.long(r)
	defer cancel()
	s.options.Status.ServeHTTP(w, r.WithContext(ctx)) //nolint:contextcheck // it is the request's
}

func (s *Server) apply(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	dryRun, err := boolean(query.Get("dryRun"))
	if err != nil {
		return badRequest("dryRun: %v", err)
	}
	forRun, err := boolean(query.Get("run"))
	if err != nil {
		return badRequest("run: %v", err)
	}
	create, err := boolean(query.Get("create"))
	if err != nil {
		return badRequest("create: %v", err)
	}
	data, err := body(w, r)
	if err != nil {
		return err
	}
	files := []manifest.File{{Name: query.Get("name"), Data: data}}
	if r.Header.Get("Content-Type") == filesType {
		if files, err = decodeFiles(data); err != nil {
			return err
		}
	} else if files[0].Name == "" {
		files[0].Name = "request"
	}
	result, err := s.options.Host.Apply(r.Context(), files, ApplyOptions{DryRun: dryRun, Run: forRun, Create: create})
	if err != nil {
		return err
	}
	s.answer(w, http.StatusOK, result)
	return nil
}

// filesType is the media type of several manifests in one request: a JSON list
// of objects with name and data, so that errors name the file.
const filesType = "application/vnd.holdfast.files+json"

type namedFile struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

func decodeFiles(data []byte) ([]manifest.File, error) {
	var given []namedFile
	if err := json.Unmarshal(data, &given); err != nil {
		return nil, badRequest("the body is not a list of files: %v", err)
	}
	files := make([]manifest.File, 0, len(given))
	for _, file := range given {
		files = append(files, manifest.File(file))
	}
	return files, nil
}

// boolean accepts Kubernetes' All as true, too.
func boolean(text string) (bool, error) {
	switch text {
	case "":
		return false, nil
	case "All":
		return true, nil
	}
	return strconv.ParseBool(text)
}

func (s *Server) journal(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	after, err := s.after(query.Get("after"))
	if err != nil {
		return badRequest("after: %v", err)
	}
	kind, key := query.Get("kind"), query.Get("key")
	follow, err := boolean(query.Get("watch"))
	switch {
	case err != nil:
		return badRequest("watch: %v", err)
	case (kind == "") != (key == ""):
		return badRequest("kind and key go together, as in kind=PersistentVolumeClaim&key=default/data")
	case follow:
		return s.followJournal(w, r, after)
	}
	answer := JournalAnswer{
		Story:    journal.Story{Events: []journal.Event{}, Steps: []journal.StepEntry{}},
		Sequence: s.options.Journal.Sequence(),
	}
	if kind != "" {
		answer.Story, err = s.options.Journal.Of(kind, key)
	} else {
		answer.Entries, answer.Sequence, err = s.options.Journal.After(after)
	}
	if err != nil {
		return err
	}
	s.answer(w, http.StatusOK, answer)
	return nil
}

// followJournal writes one entry a line until the client disconnects.
func (s *Server) followJournal(w http.ResponseWriter, r *http.Request, after uint64) error {
	ctx, cancel := s.long(r)
	defer cancel()
	out := newStream(w, "application/json")
	w.WriteHeader(http.StatusOK)
	// The answer has begun: after an error, the client only sees its end.
	err := out.control.Flush()
	for watching := s.options.Journal.Watch(after); err == nil; {
		var entries []journal.Entry
		if entries, err = watching.Next(ctx); err == nil {
			err = out.entries(entries)
		}
	}
	return nil
}

// entries writes one entry a line.
func (s *stream) entries(entries []journal.Entry) error {
	var lines []byte
	for _, entry := range entries {
		line, err := json.Marshal(entry)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	_, err := s.Write(lines)
	return err
}

// afterNow means the sequence number of the newest entry.
const afterNow = "now"

func (s *Server) after(text string) (uint64, error) {
	switch text {
	case "":
		return 0, nil
	case afterNow:
		return s.options.Journal.Sequence(), nil
	}
	return strconv.ParseUint(text, 10, 64)
}

func (s *Server) drivers(w http.ResponseWriter, r *http.Request) error {
	drivers := s.options.Host.Drivers()
	if drivers == nil {
		drivers = []Driver{}
	}
	// A driver's log may contain secrets.
	if from, err := peerFrom(r.Context()); err != nil || s.options.accessOf(from) != everything {
		for i := range drivers {
			if drivers[i].Unit != nil {
				drivers[i].Unit.Log = nil
			}
		}
	}
	s.answer(w, http.StatusOK, drivers)
	return nil
}

func (s *Server) state(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	for _, kind := range store.Kinds() {
		if kind.Kind == query.Get("kind") || kind.Resource == query.Get("kind") {
			states := s.options.Host.State(kind, query.Get("key"))
			if states == nil {
				states = []WorkState{}
			}
			s.answer(w, http.StatusOK, states)
			return nil
		}
	}
	return badRequest("kind %q is none that this host has", query.Get("kind"))
}

// about answers calls with one object's key in the query.
func about[T any](
	s *Server, kind, example string, read func(ctx context.Context, key string) (T, error),
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		key := r.URL.Query().Get(kind)
		if key == "" {
			return badRequest("%s is not given, as in %s=%s", kind, kind, example)
		}
		answer, err := read(r.Context(), key)
		if err == nil {
			s.answer(w, http.StatusOK, answer)
		}
		return err
	}
}

// hold mounts volumes for the caller. With lease=connection, the hold ends with the
// connection, but not when the host ends: the volumes stay mounted then.
func (s *Server) hold(w http.ResponseWriter, r *http.Request) error {
	var request HoldRequest
	data, err := body(w, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &request); err != nil {
		return badRequest("the body is not a HoldRequest: %v", err)
	}
	if lease := r.URL.Query().Get("lease"); lease != "" && lease != leaseConnection {
		return badRequest("lease %q is not known; use %s", lease, leaseConnection)
	} else if request.Lease = lease == leaseConnection; request.Lease {
		from, err := peerFrom(r.Context())
		if err != nil {
			return err
		}
		request.PID = from.pid
	}
	answer, err := s.options.Host.Hold(r.Context(), request)
	switch {
	case err != nil:
		return err
	case !request.Lease:
		s.answer(w, http.StatusOK, answer)
		return nil
	}
	return s.lease(w, r, request, answer)
}

const leaseConnection = "connection"

// releaseLimit bounds the release of a lease; the pod controller continues after it.
const releaseLimit = 2 * time.Minute

func (s *Server) lease(w http.ResponseWriter, r *http.Request, request HoldRequest, answer HoldAnswer) error {
	line, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	if _, err = newStream(w, "application/json").Write(append(line, '\n')); err == nil {
		select {
		case <-r.Context().Done():
		case <-s.leaving.Done():
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), releaseLimit)
	defer cancel()
	err = s.options.Host.Release(ctx, ReleaseRequest{Namespace: request.Namespace, Name: request.Name, UID: answer.UID})
	if err != nil && !errors.Is(err, ErrNotFound) {
		s.options.Logger.Warn("a hold was not released when its connection ended", "namespace", request.Namespace,
			"name", request.Name, "error", err)
	}
	return nil
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) error {
	return s.within(w, r, func(ctx context.Context) error {
		return s.options.Host.Release(ctx, ReleaseRequest{
			Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), UID: r.URL.Query().Get("uid"),
		})
	})
}

func (s *Server) drain(w http.ResponseWriter, r *http.Request) error {
	return s.within(w, r, s.options.Host.Drain)
}

// within calls do with the time limit of the request, and answers with nothing but
// success.
func (s *Server) within(w http.ResponseWriter, r *http.Request, do func(context.Context) error) error {
	ctx := r.Context()
	if text := r.URL.Query().Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 32)
		if err != nil || seconds <= 0 {
			return badRequest("timeoutSeconds %q is not a number of seconds", text)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
	}
	if err := do(ctx); err != nil {
		return err
	}
	s.answer(w, http.StatusOK, struct{}{})
	return nil
}
