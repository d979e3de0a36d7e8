package cluster

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// samples returns the counts of a metric by the values of its labels, without the host.
func samples(t *testing.T, registry *prometheus.Registry, name, host string) map[string]uint64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				if label.GetName() != "host" {
					labels = append(labels, label.GetName()+"="+label.GetValue())
				} else if label.GetValue() != host {
					t.Errorf("the host is %q, not %q", label.GetValue(), host)
				}
			}
			found[strings.Join(labels, " ")] = uint64(metric.GetCounter().GetValue()) + metric.GetHistogram().GetSampleCount()
		}
	}
	return found
}

func TestMeasured_countsAndTimesRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Has("watch") {
			return // a watch that ends at once
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	registry := prometheus.NewRegistry()
	clients, err := NewClients(&rest.Config{Host: server.URL}, "test", Measured(registry))
	if err != nil {
		t.Fatal(err)
	}
	nodes := clients.Core.CoreV1().Nodes()
	for range 2 {
		_, _ = nodes.Get(t.Context(), "n", metav1.GetOptions{})
	}
	_ = clients.Leases.CoordinationV1().Leases("ns").Delete(t.Context(), "l", metav1.DeleteOptions{})
	if watch, err := nodes.Watch(t.Context(), metav1.ListOptions{}); err == nil {
		watch.Stop()
	}
	host := strings.TrimPrefix(server.URL, "http://")
	for name, want := range map[string]map[string]uint64{
		"rest_client_requests_total": {
			"code=404 method=GET": 2, "code=404 method=DELETE": 1, "code=200 method=GET": 1,
		},
		"rest_client_request_duration_seconds": {"verb=GET": 2, "verb=DELETE": 1},
	} {
		if got := samples(t, registry, name, host); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestMeasured_countsRequestsWithoutAnAnswer(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	registry := prometheus.NewRegistry()
	clients, err := NewClients(&rest.Config{Host: server.URL}, "test", Measured(registry))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = clients.Core.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	host := strings.TrimPrefix(server.URL, "http://")
	if got := samples(t, registry, "rest_client_requests_total", host); got["code=<error> method=GET"] == 0 || len(got) != 1 {
		t.Errorf("got %v", got)
	}
}
