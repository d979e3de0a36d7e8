package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/policy"
)

const podSpec = `{"serviceAccountName":"SA","containers":[{"name":"c"}],"volumes":[{"name":"pipe","hostPath":{"path":"\\\\.\\pipe\\csi-proxy-v1"}}]}`

func newHandler(t *testing.T) *handler {
	t.Helper()
	rule, err := policy.New([]policy.Account{{Namespace: "storage", Name: "good"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return &handler{answer: pipes{rule}.answer, log: slog.New(slog.DiscardHandler), reviews: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"kind", "decision"})}
}

func post(t *testing.T, h http.Handler, contentType, body string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, strings.NewReader(body))
	request.Header.Set("Content-Type", contentType)
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	return recorder
}

func review(t *testing.T, kind, namespace, object string) string {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u-1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: kind}, Namespace: namespace,
			Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func answered(t *testing.T, h http.Handler, kind, namespace, object string) *admissionv1.AdmissionResponse {
	t.Helper()
	recorder := post(t, h, "application/json", review(t, kind, namespace, object))
	var got admissionv1.AdmissionReview
	if err := json.NewDecoder(bytes.NewReader(recorder.Body.Bytes())).Decode(&got); err != nil || recorder.Code != http.StatusOK {
		t.Fatalf("%d: %s (%v)", recorder.Code, recorder.Body, err)
	}
	if got.Response == nil || got.Response.UID != "u-1" || got.Request != nil || got.Kind != "AdmissionReview" {
		t.Fatalf("the answer is %+v", got)
	}
	return got.Response
}

// Every kind that contains a pod, at any depth.
func TestWebhook_findsThePodInEveryKind(t *testing.T) {
	template := `{"spec":{"template":{"spec":` + podSpec + `}}}`
	for kind, object := range map[string]string{
		"Pod": `{"spec":` + podSpec + `}`, "PodTemplate": `{"template":{"spec":` + podSpec + `}}`,
		"ReplicationController": template, "Deployment": template, "ReplicaSet": template, "StatefulSet": template,
		"DaemonSet": template, "Job": template, "CronJob": `{"spec":{"jobTemplate":{"spec":{"template":{"spec":` + podSpec + `}}}}}`,
	} {
		h := newHandler(t)
		for account, want := range map[string]bool{"good": true, "bad": false} {
			response := answered(t, h, kind, "storage", strings.Replace(object, "SA", account, 1))
			if response.Allowed != want {
				t.Errorf("%s of account %s: allowed %v", kind, account, response.Allowed)
			}
			if !want && (response.Result.Code != 403 || !strings.Contains(response.Result.Message, `volume pipe`)) {
				t.Errorf("%s: %+v", kind, response.Result)
			}
		}
		if answered(t, h, kind, "elsewhere", strings.Replace(object, "SA", "good", 1)).Allowed {
			t.Errorf("%s: the account of another namespace is allowed", kind)
		}
	}
}

func TestWebhook_checksPersistentVolumes(t *testing.T) {
	h := newHandler(t)
	for field, path := range map[string]string{"hostPath": `\\\\.\\pipe\\csi-proxy-v1`, "local": `//./pipe/csi-proxy-v1`} {
		if answered(t, h, "PersistentVolume", "", `{"spec":{"`+field+`":{"path":"`+path+`"}}}`).Allowed {
			t.Errorf("%s %s is allowed", field, path)
		}
	}
	if !answered(t, h, "PersistentVolume", "", `{"spec":{"csi":{"driver":"ebs.csi.aws.com","volumeHandle":"vol-1"}}}`).Allowed {
		t.Error("a CSI volume is refused")
	}
}

// Field names are case-sensitive: a field that the API server does not accept as a
// volume is not one here, so both read the same object.
func TestWebhook_readsAsTheAPIServerDoes(t *testing.T) {
	object := `{"spec":{"Volumes":[{"name":"x","hostPath":{"path":"C:\\data"}}],"volumes":[{"name":"pipe","hostPath":{"path":"\\\\.\\pipe\\csi-proxy-v1"}}]}}`
	if answered(t, newHandler(t), "Pod", "storage", object).Allowed {
		t.Error("another spelling of a field hid the volume")
	}
}

func TestWebhook_admitsADeletion(t *testing.T) {
	if !answered(t, newHandler(t), "Pod", "storage", `null`).Allowed {
		t.Error("it is refused")
	}
	if !answered(t, newHandler(t), "Pod", "storage", `{"metadata":{"deletionTimestamp":"2026-11-21T00:00:00Z"},"spec":`+podSpec+`}`).Allowed {
		t.Error("an object that is being deleted cannot lose its finalizers")
	}
}

func TestWebhook_refusesWhatItCannotRead(t *testing.T) {
	h := newHandler(t)
	for kind, object := range map[string]string{"Pod": `{"spec":{"volumes":"none"}}`, "ConfigMap": `{}`} {
		if response := answered(t, h, kind, "storage", object); response.Allowed || response.Result.Code != 400 {
			t.Errorf("%s: %+v", kind, response)
		}
	}
}

// Pods of the cluster can reach the port as well: kinds that they invent must not fill the
// memory with metrics.
func TestWebhook_countsKindsThatItDoesNotKnowAsOne(t *testing.T) {
	h := newHandler(t)
	for i := range 100 {
		answered(t, h, fmt.Sprint("Invented", i), "storage", `{}`)
	}
	for _, kind := range kinds {
		answered(t, h, kind, "storage", `{}`)
	}
	series := make(chan prometheus.Metric, 1000)
	h.reviews.Collect(series)
	if len(series) != 1+len(kinds) {
		t.Errorf("%d series", len(series))
	}
}

func TestWebhook_answersAnInvalidReviewWithAClientError(t *testing.T) {
	h := newHandler(t)
	for _, c := range []struct {
		name, contentType, body string
		want                    int
	}{
		{"another type", "text/plain", "{}", http.StatusUnsupportedMediaType},
		{"no JSON", "application/json", "{", http.StatusBadRequest},
		{"another version", "application/json", `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}`, http.StatusBadRequest},
		{"no request", "application/json", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest},
		{"too large", "application/json", `"` + strings.Repeat("x", largest) + `"`, http.StatusRequestEntityTooLarge},
	} {
		if got := post(t, h, c.contentType, c.body); got.Code != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, got.Code, got.Body, c.want)
		}
	}
}
