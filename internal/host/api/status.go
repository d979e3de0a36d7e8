package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// statusError is an answer in the form in which Kubernetes gives errors.
type statusError struct{ status metav1.Status }

func (e *statusError) Error() string         { return e.status.Message }
func (e *statusError) Status() metav1.Status { return e.status }

// Is makes a client's error the one that the host gave.
func (e *statusError) Is(target error) bool {
	for _, row := range reasons() {
		if row.reason == e.status.Reason {
			return row.err == target
		}
	}
	return false
}

type reasonRow struct {
	err    error
	code   int32
	reason metav1.StatusReason
}

// reasons are the errors with their own reason.
func reasons() []reasonRow {
	return []reasonRow{
		{ErrInvalid, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
		{ErrConflict, http.StatusConflict, metav1.StatusReasonConflict},
		{ErrNotFound, http.StatusNotFound, metav1.StatusReasonNotFound},
		{ErrForbidden, http.StatusForbidden, metav1.StatusReasonForbidden},
		{store.ErrExpired, http.StatusGone, metav1.StatusReasonExpired},
		{context.DeadlineExceeded, http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
		{context.Canceled, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	}
}

// refuse is an error with the status code and reason of HTTP and Kubernetes.
func refuse(code int32, reason metav1.StatusReason, format string, arguments ...any) error {
	return &statusError{failure(code, reason, fmt.Sprintf(format, arguments...))}
}

func failure(code int32, reason metav1.StatusReason, text string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: text,
	}
}

func badRequest(format string, arguments ...any) error {
	return refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, arguments...)
}

// statusOf finds the answer for an error.
func statusOf(err error) metav1.Status {
	if known, ok := errors.AsType[*statusError](err); ok {
		return known.status
	}
	if known, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status := known.Status()
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return status
	}
	code, reason := int32(http.StatusInternalServerError), metav1.StatusReasonInternalError
	for _, row := range reasons() {
		if errors.Is(err, row.err) {
			code, reason = row.code, row.reason
			break
		}
	}
	return failure(code, reason, err.Error())
}

// answerError writes an error.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Code >= http.StatusInternalServerError {
		s.options.Logger.Warn("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	s.answer(w, int(status.Code), status)
}

// answer writes a value as JSON.
func (s *Server) answer(w http.ResponseWriter, code int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		s.options.Logger.Error("an answer cannot be encoded", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	// A client that does not read must not block the server. This server's connections
	// all support deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(timeout(writeLimit))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n')) // the client is gone
}
