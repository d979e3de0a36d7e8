//go:build monitoring

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/holdfast-csi/holdfast/deploy/monitoring/rules"
)

// interval is that of scrapes and of rules. Times of rules pass 300 times as fast as
// for an operator: an hour is 12 s.
const interval = 500 * time.Millisecond

func clock() rules.Clock { return rules.Clock{Factor: 1.0 / 300, Shortest: 5 * interval} }

// target is one page of metrics.
type target struct {
	job, address string
	https        bool
	// native asks for native histograms, in place of classic ones.
	native bool
}

// watcher is a Prometheus with the project's rules.
type watcher struct {
	t   *testing.T
	api v1.API
}

// watch starts a Prometheus that scrapes the targets.
func watch(t *testing.T, targets ...target) *watcher {
	t.Helper()
	directory := t.TempDir()
	text, err := rules.File(clock(), interval)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(directory, "rules.yaml"), string(text))
	write(t, filepath.Join(directory, "prometheus.yml"), configuration(targets))
	listen := address(t)
	start(t, "prometheus", programs.prometheus, "--config.file="+filepath.Join(directory, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(directory, "data"), "--web.listen-address="+listen, "--log.level=warn")
	client, err := api.NewClient(api.Config{Address: "http://" + listen})
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{t: t, api: v1.NewAPI(client)}
	eventually(t, "Prometheus is ready", func() string {
		response, err := http.Get("http://" + listen + "/-/ready") //nolint:noctx // of this machine
		if err != nil {
			return err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return response.Status
		}
		return ""
	})
	eventually(t, "the targets are up", func() string {
		if up := w.query("up == 1"); len(up) != len(targets) {
			return fmt.Sprintf("%d of %d: %v", len(up), len(targets), w.query("up"))
		}
		return ""
	})
	return w
}

func configuration(targets []target) string {
	var text strings.Builder
	fmt.Fprintf(&text, "global: {scrape_interval: %s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}\nrule_files: [rules.yaml]\nscrape_configs:\n",
		model.Duration(interval))
	for _, target := range targets {
		scheme := "http"
		if target.https {
			scheme = "https"
		}
		fmt.Fprintf(&text, "  - {job_name: %s, honor_labels: true, scheme: %s, tls_config: {insecure_skip_verify: true}, "+
			"scrape_native_histograms: %t, static_configs: [{targets: [%q]}]}\n", target.job, scheme, target.native, target.address)
	}
	return text.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// query returns the present result of an expression.
func (w *watcher) query(expression string) model.Vector {
	w.t.Helper()
	value, _, _, err := w.api.Query(w.t.Context(), expression, time.Now())
	if err != nil {
		w.t.Fatalf("%s: %v", expression, err)
	}
	vector, ok := value.(model.Vector)
	if !ok {
		w.t.Fatalf("%s is a %T", expression, value)
	}
	return vector
}

// firing are the names of the alerts that fire.
func (w *watcher) firing() (names []string) {
	w.t.Helper()
	result, err := w.api.Alerts(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, alert := range result.Alerts {
		if alert.State == v1.AlertStateFiring {
			names = append(names, string(alert.Labels["alertname"]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fires waits until an alert fires.
func (w *watcher) fires(alert string) {
	w.t.Helper()
	w.firesWithin(patience, alert)
}

func (w *watcher) firesWithin(limit time.Duration, alert string) {
	w.t.Helper()
	within(w.t, limit, alert+" fires", func() string {
		if names := w.firing(); !slices.Contains(names, alert) {
			return fmt.Sprintf("firing: %v", names)
		}
		return ""
	})
	w.t.Logf("%s fires", alert)
}

// stops waits until none of the alerts fires.
func (w *watcher) stops(alerts ...string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%v stop", alerts), func() string {
		for _, name := range w.firing() {
			if slices.Contains(alerts, name) {
				return name + " still fires"
			}
		}
		return ""
	})
	w.t.Logf("%v stopped", alerts)
}

// quiet fails if an alert fires that no fault explains.
func (w *watcher) quiet() {
	w.t.Helper()
	if names := w.firing(); len(names) != 0 {
		w.t.Errorf("without a fault, %v fire", names)
	}
}
