// Package webhook serves the rules of packages policy and inline as an admission
// webhook (admission.k8s.io/v1), for clusters without admission policies in CEL
// and for administrators who want the rejections of all rules in one log.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/holdfast-csi/holdfast/internal/policy"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

const (
	// Path is where the API server posts reviews for the rule of the pipes.
	Path = "/validate"
	// InlinePath is the path for the rules of inline volumes.
	InlinePath = "/validate-inline"
	// ReadOnlyPath is the path for making inline volumes read-only.
	ReadOnlyPath = "/mutate-inline"
	// largest is the largest review in bytes: the new and the old object, each of up to
	// etcd's limit of 1.5 MiB, and the rest.
	largest = 4 << 20
)

// Options of a webhook.
type Options struct {
	Address string // host:port or :port
	// TLS is required: an API server calls a webhook only by TLS.
	TLS      telemetry.TLS
	Rule     *policy.Rule
	Inline   *Inline // nil: these rules are not served
	Logger   *slog.Logger
	Registry *prometheus.Registry
	// Listening, if set, is called with the address once it is bound.
	Listening func(net.Addr)
}

// handler answers reviews.
type handler struct {
	// answer may change a response, which admits the request.
	answer  func(context.Context, *admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse)
	log     *slog.Logger
	reviews *prometheus.CounterVec
}

// Run serves until ctx ends.
func Run(ctx context.Context, o Options) error {
	h := handler{answer: pipes{o.Rule}.answer, log: o.Logger.With("component", "webhook"),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_policy_reviews_total", Help: "Admission reviews by kind of object and decision (allowed, refused, unreadable).",
		}, []string{"kind", "decision"})}
	if err := o.Registry.Register(h.reviews); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+Path, &h)
	if o.Inline != nil {
		validates, mutates := h, h
		validates.answer, mutates.answer = o.Inline.validate, o.Inline.mutate
		mux.Handle("POST "+InlinePath, &validates)
		mux.Handle("POST "+ReadOnlyPath, &mutates)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.Handle("GET /metrics", telemetry.MetricsHandler(o.Registry, o.TLS))
	listening := func(address net.Addr) {
		h.log.Info("answering admission reviews", "address", address.String())
		if o.Listening != nil {
			o.Listening(address)
		}
	}
	limited := (&bodies{byHost: map[string]int64{}}).limit(mux)
	server := telemetry.Server{Address: o.Address, Handler: limited, Logger: o.Logger, TLS: o.TLS, Listening: listening}
	if err := server.Run(ctx); err != nil {
		return fmt.Errorf("webhook on %s: %w", o.Address, err)
	}
	return nil
}

// ServeHTTP answers one review. Any other request is a client's error; an API server
// then follows its failurePolicy.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review, code, err := decode(w, r)
	if err != nil {
		h.reviews.WithLabelValues("", "unreadable").Inc()
		h.log.Warn("a request is not an admission review", "from", r.RemoteAddr, "error", err)
		http.Error(w, err.Error(), code)
		return
	}
	request := review.Request
	review.Request, review.Response = nil, &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	h.answer(r.Context(), request, review.Response)
	h.report(request, review.Response)
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		h.log.Warn("the answer did not reach the API server", "uid", request.UID, "error", err)
	}
}

func decode(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionReview, int, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, http.StatusUnsupportedMediaType, fmt.Errorf("Content-Type %q is not application/json",
			r.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largest))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the review is larger than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("read the review: %w", err)
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("decode the review: %w", err)
	}
	switch {
	case review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview":
		return nil, http.StatusBadRequest, fmt.Errorf("%.100q of %.100q is not AdmissionReview of %s; set admissionReviewVersions: [v1]",
			review.Kind, review.APIVersion, admissionv1.SchemeGroupVersion)
	case review.Request == nil:
		return nil, http.StatusBadRequest, errors.New("the review has no request")
	}
	return review, 0, nil
}

// report logs rejections and counts all reviews. Any client of the port can post
// reviews of invented kinds: these have one label.
func (h *handler) report(request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) {
	kind := "other"
	if slices.Contains(kinds, request.Kind.Kind) {
		kind = request.Kind.Kind
	}
	if response.Allowed {
		h.reviews.WithLabelValues(kind, "allowed").Inc()
		return
	}
	h.reviews.WithLabelValues(kind, "refused").Inc()
	h.log.Info("refused", "kind", request.Kind.Kind, "namespace", request.Namespace, "name", request.Name,
		"user", request.UserInfo.Username, "operation", request.Operation, "reason", response.Result.Message)
}
