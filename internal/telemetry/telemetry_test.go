package telemetry

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

func TestMain(m *testing.M) {
	peertest.Main()
	goleak.VerifyTestMain(m)
}

func TestNewLogger_formats(t *testing.T) {
	cases := []struct{ format, begin string }{
		{FormatText, "time="}, {FormatJSON, `{"time"`}, {FormatAuto, `{"time"`}, // a buffer is not a terminal
	}
	for _, c := range cases {
		var out bytes.Buffer
		log, err := NewLogger(&out, c.format, "info")
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("not seen")
		log.Info("seen")
		if lines := strings.Count(out.String(), "\n"); lines != 1 || !strings.HasPrefix(out.String(), c.begin) {
			t.Errorf("format %s writes %q", c.format, out.String())
		}
	}
}

func TestNewLogger_refusesUnknownWords(t *testing.T) {
	if _, err := NewLogger(io.Discard, "xml", "info"); err == nil {
		t.Error("format xml is accepted")
	}
	if _, err := NewLogger(io.Discard, FormatText, "loud"); err == nil {
		t.Error("level loud is accepted")
	}
}

// open runs a page on a free port and returns its address.
func open(t *testing.T, handlers map[string]http.Handler) string {
	t.Helper()
	return openWith(t, Page{Handlers: handlers})
}

// openWith runs a page of which the rest is given.
func openWith(t *testing.T, page Page) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	bound, done := make(chan net.Addr, 1), make(chan error, 1)
	page.Address, page.Gatherer, page.Logger = "127.0.0.1:0", metrics.NewRegistry("v0"), slog.New(slog.DiscardHandler)
	page.Listening = func(address net.Addr) { bound <- address }
	go func() { done <- page.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the page ended with %v", err)
		}
	})
	return "http://" + (<-bound).String()
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func TestPage_servesMetricsAndItsHandlers(t *testing.T) {
	address := open(t, map[string]http.Handler{"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "well")
	})})
	for path, want := range map[string]string{"/metrics": "go_goroutines", "/healthz": "well"} {
		if code, body := get(t, address+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s answers %d %.80q", path, code, body)
		}
	}
	if code, _ := get(t, address+"/nothing"); code != http.StatusNotFound {
		t.Errorf("an unknown path answers %d", code)
	}
}

func TestPage_takesBetterAnswers(t *testing.T) {
	teapot := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	handler := Page{Gatherer: metrics.NewRegistry("v0"), Handlers: map[string]http.Handler{"/healthz": teapot, "/healthz/more": teapot}}.handler()
	for path, want := range map[string]int{"/healthz": http.StatusTeapot, "/healthz/more": http.StatusTeapot, "/metrics": http.StatusOK} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != want {
			t.Errorf("%s answers %d, want %d", path, answer.Code, want)
		}
	}
}

func TestPage_failsOnATakenAddress(t *testing.T) {
	address := strings.TrimPrefix(open(t, nil), "http://")
	err := Page{Address: address, Gatherer: metrics.NewRegistry("v0"), Logger: slog.New(slog.DiscardHandler)}.Run(context.Background())
	if err == nil {
		t.Error("two pages serve one address")
	}
}

func TestNewTracing_isDisabledWithoutAnEndpoint(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	tracing, err := NewTracing(context.Background(), "holdfast", "v0")
	if err != nil || tracing.Provider() != nil {
		t.Fatalf("tracing is %v, %v; want none", tracing, err)
	}
	if err := tracing.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestNewTracing_startsAndEndsWithoutACollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	tracing, err := NewTracing(context.Background(), "holdfast", "v0")
	if err != nil || tracing.Provider() == nil {
		t.Fatalf("tracing is %v, %v", tracing, err)
	}
	if err := tracing.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
