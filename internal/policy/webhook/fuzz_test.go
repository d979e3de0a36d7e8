package webhook

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
	"github.com/holdfast-csi/holdfast/internal/policy"
	"github.com/holdfast-csi/holdfast/internal/policy/inline"
	"github.com/holdfast-csi/holdfast/internal/policy/policytest"
)

// FuzzReview posts any body, and any object of each kind, to every rule: a review is
// answered for its UID, any other body is the client's error, and a patch is JSON.
func FuzzReview(f *testing.F) {
	rule, err := policy.New([]policy.Account{{Namespace: "storage", Name: "good"}}, "")
	if err != nil {
		f.Fatal(err)
	}
	rules, err := inline.New(policytest.InlineOptions())
	if err != nil {
		f.Fatal(err)
	}
	served := &Inline{rules, table{}}
	answers := []*handler{{answer: pipes{rule}.answer}, {answer: served.validate}, {answer: served.mutate}}
	reviews := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"kind", "decision"})
	for _, h := range answers {
		h.log, h.reviews = slog.New(slog.DiscardHandler), reviews
	}
	add := func(kind uint8, object any) {
		text, err := json.Marshal(object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kind, "CREATE", "shop", text)
	}
	for _, c := range policytest.InlineCases() {
		_, object := objectOf(c)
		add(0, object)
	}
	for i := range kinds {
		f.Add(uint8(i), "UPDATE", "storage", []byte(`{"spec":{"template":{"spec":`+podSpec+`}}}`))
		f.Add(uint8(i), "CREATE", "shop", []byte(`{"spec":`+podSpec+`,"metadata":{"annotations":{"a":"b"},"labels":null}}`))
	}
	f.Add(uint8(0), "CREATE", "shop", []byte(`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1234567890123456789e999999999"}}}]}}`))
	f.Add(uint8(0), "CREATE", "shop", []byte(`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":1234567890123456789e999999999}}]}}`))
	f.Add(uint8(255), "", "", []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","object":{}}}`))
	f.Add(uint8(255), "", "", []byte(strings.Repeat(`{"a":`, 5000)))
	f.Fuzz(func(t *testing.T, kind uint8, operation, namespace string, object []byte) {
		body := object
		if kind != 255 {
			body = reviewOf(kinds[int(kind)%len(kinds)], operation, namespace, object)
		}
		for _, h := range answers {
			fuzztest.Cost{}.Within(t, len(body), func() { checkReview(t, h, body, kind != 255) })
		}
	})
}

// reviewOf is a review with an object as it is, which may be no JSON.
func reviewOf(kind, operation, namespace string, object []byte) []byte {
	words, _ := json.Marshal([]string{kind, operation, namespace}) // strings always have a JSON form
	var quoted []json.RawMessage
	_ = json.Unmarshal(words, &quoted)
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","kind":{"kind":` + string(quoted[0]) +
		`},"operation":` + string(quoted[1]) + `,"namespace":` + string(quoted[2]) + `,"object":` + string(object) + `}}`)
}

func checkReview(t *testing.T, h *handler, body []byte, own bool) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, strings.NewReader(string(body)))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusOK {
		if recorder.Code >= 500 {
			t.Fatalf("%d: %s", recorder.Code, recorder.Body)
		}
		return
	}
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil || got.Response == nil || got.Request != nil {
		t.Fatalf("the answer is %s (%v)", recorder.Body, err)
	}
	response := got.Response
	if own && response.UID != "u-1" {
		t.Fatalf("the answer is for %q", response.UID)
	}
	if !response.Allowed && (response.Result == nil || response.Result.Message == "" || len(response.Patch) > 0) {
		t.Fatalf("refused with %+v", response)
	}
	if len(response.Patch) > 0 && !json.Valid(response.Patch) {
		t.Fatalf("the patch is %s", response.Patch)
	}
}
