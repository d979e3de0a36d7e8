//go:build monitoring

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/deploy/monitoring/dashboards"
)

// unseen are metrics that cannot have a value in this test, with the reason. One that has
// a value all the same fails the test.
func unseen() map[string]string {
	return map[string]string{
		"holdfast_pool_full_seconds":  "needs figures of ten minutes: TestAlerts_ofTheHost has them",
		"aws_ebs_csi_read_":           "statistics come from NVMe disks: make test-nvme",
		"aws_ebs_csi_write_":          "as above",
		"aws_ebs_csi_exceeded_":       "as above",
		"aws_ebs_csi_volume_queue":    "as above",
		"holdfast_provision_unserved": "of controllers on each node alone",
		"holdfast_volume_condition":   "exists while a volume has a condition",
	}
}

// TestDashboards_everyQueryReturnsData runs the queries of all dashboards against what a
// real Prometheus scraped from all parts at work.
func TestDashboards_everyQueryReturnsData(t *testing.T) {
	m, k, a := newMachine(t), newKube(t), newAccount(t)
	w := watch(t, append(append(m.targets(), a.targets()...), k.target())...)
	defer work(m, k, a)()
	// The last results of queries that had none, until all have some.
	missing := map[string]string{}
	list := queries(t)
	for deadline := time.Now().Add(patience); ; time.Sleep(interval) {
		clear(missing)
		for name, expression := range list {
			if len(w.query(expression)) == 0 {
				missing[name] = expression
			}
		}
		if len(unexplained(missing)) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unexplained(missing))) {
		t.Errorf("%s: no data: %s", name, missing[name])
	}
	for metric, reason := range unseen() {
		if !slices.ContainsFunc(slices.Collect(maps.Values(missing)), func(expression string) bool { return strings.Contains(expression, metric) }) {
			t.Errorf("%s has data, and is excused: %s", metric, reason)
		}
	}
	t.Logf("%d queries, %d without data for a known reason", len(list), len(missing))
}

func unexplained(missing map[string]string) map[string]string {
	rest := maps.Clone(missing)
	maps.DeleteFunc(rest, func(_, expression string) bool {
		for metric := range unseen() {
			if strings.Contains(expression, metric) {
				return true
			}
		}
		return false
	})
	return rest
}

// queries are those of all dashboards by dashboard and panel, with the values that their
// variables have in this test.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all, err := dashboards.All()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, d := range all {
		for i, expression := range d.Queries() {
			expression = strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", `="$instance"`, `=~".*"`, `="$volume"`, `=~".*"`).Replace(expression)
			found[fmt.Sprintf("%s %d", d.Name, i)] = expression
		}
	}
	return found
}

// work lets each part do something, and something fail: what must not end meanwhile ends
// with the returned function.
func work(m *machine, k *kube, a *account) (end func()) {
	m.apply(claimOf("data", "local.holdfast.dev", "")+podOf("data"), "--wait")
	m.apply(claimOf("second", otherDriver, ""), "--wait")
	m.apply(claimOf("wrong", otherDriver, "tpye: thin")) // the driver refuses it
	k.Add(claim("data"))
	k.Add(attachment("data", k.provisioned("data").Name, nodeName))
	k.attached("data")
	repair := k.fail("CreateVolume", answers(codes.Internal))
	k.Add(claim("again"))
	eventually(k.t, "a failed call", func() string {
		if k.Driver.Count("CreateVolume") < 3 {
			return "no second attempt"
		}
		return ""
	})
	repair()
	k.provisioned("again")
	for i := range 3 {
		if _, err := a.create(fmt.Sprintf("v-%d", i)); err != nil {
			a.t.Fatal(err)
		}
	}
	a.ask(http.MethodPost, "/faults", `{"kind": "throttle", "action": "CreateVolume", "count": 2}`)
	a.ask(http.MethodPost, "/faults", `{"kind": "error", "action": "DeleteVolume", "code": "UnauthorizedOperation", "status": 403, "count": 1}`)
	volume, err := a.create("throttled")
	if err != nil {
		a.t.Fatal(err)
	}
	_ = a.controller.Client.DeleteVolume(a.t.Context(), &csi.DeleteVolumeRequest{VolumeId: volume}) // is refused
	kept, err := a.create("kept")
	if err != nil {
		a.t.Fatal(err)
	}
	return a.keepBusy(kept)
}
