//go:build monitoring

package rules_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-csi/holdfast/deploy/monitoring/rules"
)

// unit is a course of metrics, one value a minute, and the alert that it means.
type unit struct {
	alert  string
	series map[string]string
	// quiet and fires are the times at which the alert does not fire, and does.
	quiet, fires string
	// ended is a time at which it fires no longer.
	ended string
}

const local = `{job="j",instance="i",driver_name="d",pool="/p"}`

// units have one course for each alert. No other alert fires at the same time, except
// those named with "+".
func units() []unit {
	return []unit{
		{"HoldfastPoolNearlyFull", pool("9x30 50x30"), "14m", "16m", "35m"},
		{"HoldfastPoolFull+HoldfastPoolNearlyFull", pool("1x30 50x30"), "1m", "17m", "35m"},
		{"HoldfastPoolFullSoon", map[string]string{"holdfast_pool_full_seconds" + local: "80000x90 900000000x30"}, "59m", "61m", "95m"},
		{"HoldfastPoolInodesLow", map[string]string{"holdfast_pool_inodes_free" + local: "4x30 90x30", "holdfast_pool_inodes" + local: "100x60"}, "14m", "16m", "35m"},
		{"HoldfastPoolUnusable", condition("PoolReadOnly"), "0m", "2m", "95m"},
		{"HoldfastPoolDegraded", condition("CopiesUnfinished"), "59m", "61m", "95m"},
		{"HoldfastVolumeAbnormal", one(`holdfast_volume_condition{driver_name="d",condition="FilesystemReadOnly"}`, "1x10 0x10"), "1m", "3m", "12m"},
		{"HoldfastFilesystemFrozen", one(`holdfast_filesystem_frozen{driver_name="d"}`, "1x10 0x10"), "1m", "3m", "12m"},
		{"HoldfastVolumeUnresponsive", one(`holdfast_volume_unresponsive{driver_name="d"}`, "2x10 0x10"), "1m", "3m", "12m"},
		{"HoldfastVolumeHealthStale", one(`holdfast_volume_health_stale_volumes{driver_name="d"}`, "3x90 0x10"), "59m", "61m", "95m"},
		{"HoldfastClaimUnhealthy", one(`csi_controller_volume_health_status{driver_name="d",namespace="n",persistentvolumeclaim="c",status="DEGRADED",reason="R"}`, "1x30 0x10"), "9m", "11m", "35m"},
		// For longer than the window in which it is known to be one of Holdfast's.
		{"HoldfastTargetDown", map[string]string{`up{job="j",instance="i"}`: "1 0x2900 1x20", `holdfast_build_info{job="j",instance="i",version="v"}`: "1 stale", `up{job="other",instance="i"}`: "0x2920"}, "5m", "2890m", "2910m"},
		{"HoldfastTargetDown", map[string]string{`up{job="j",instance="i"}`: "1 0x20 1x20", `holdfast_build_info{job="j",instance="i",version="v"}`: "1 stale"}, "5m", "7m", "25m"},
		{"HoldfastDriverHangs", one(`holdfast_rpc_oldest_seconds{driver_name="d",method="CreateVolume",reason="running"}`, "0+60x30 0x10"), "9m", "11m", "35m"},
		{"HoldfastCallFails", one(`holdfast_rpc_oldest_seconds{driver_name="d",method="CreateVolume",reason="Internal"}`, "0+60x60 0x10"), "29m", "31m", "65m"},
		{"HoldfastOperationHangs", one(`holdfast_operation_oldest_seconds{driver_name="d",kind="provision",reason="running"}`, "0+60x30 0x10"), "14m", "16m", "35m"},
		{"HoldfastOperationFails", one(`holdfast_operation_oldest_seconds{driver_name="d",kind="attach",reason="Internal"}`, "0+60x60 0x10"), "29m", "31m", "65m"},
		{"", one(`holdfast_operation_oldest_seconds{driver_name="d",kind="provision",reason="waiting"}`, "0+60x600"), "29m", "599m", ""},
		{"HoldfastDriverNotRegistered", map[string]string{`holdfast_driver_registered{driver_name="d"}`: "0x10 1x10", `holdfast_driver_healthy{driver_name="d"}`: "0x10 1x10"}, "1m", "3m", "12m"},
		{"HoldfastDriverUnhealthy", map[string]string{`holdfast_driver_registered{driver_name="d"}`: "1x20", `holdfast_driver_healthy{driver_name="d"}`: "0x10 1x10"}, "1m", "3m", "12m"},
		{"HoldfastDriverRestarts", one(`holdfast_driver_restarts_total{driver_name="d"}`, "0 1 2 3 4 5x60"), "2m", "6m", "50m"},
		{"HoldfastCertificateExpires", one(`holdfast_certificate_expiry_timestamp_seconds{file="f"}`, "604860x10 9000000x10"), "0m", "2m", "15m"},
		{"HoldfastIntentQuarantined", one("holdfast_provision_quarantined_intents", "1x10 0x10"), "4m", "6m", "12m"},
		{"HoldfastIntentsUnserved", one("holdfast_provision_unserved_intents", "1x30 0x10"), "14m", "16m", "32m"},
		{"HoldfastAttachmentStuck", one(`holdfast_attachments_oldest_seconds{driver_name="d",operation="attach"}`, "0+60x20 0x10"), "4m", "6m", "25m"},
		{"HoldfastNodeLost", one(`holdfast_lost_nodes{driver_name="d"}`, "1x20 0x10"), "4m", "6m", "25m"},
		{"HoldfastQueueStuck", one(`holdfast_workqueue_oldest_seconds{name="q"}`, "0+60x40 0x10"), "19m", "22m", "45m"},
		{"HoldfastNoLeader", map[string]string{`holdfast_lease_renew_age_seconds{name="l",instance="a"}`: "2 2 62+60x10 3x10", `holdfast_lease_renew_age_seconds{name="l",instance="b"}`: "2 2 65+60x20"}, "2m", "4m", "16m"},
		{"HoldfastNoLeader", map[string]string{`holdfast_lease_renew_age_seconds{name="l",cluster="a"}`: "2 2 62+60x10 3x10", `holdfast_lease_renew_age_seconds{name="l",cluster="b"}`: "2x30"}, "2m", "4m", "16m"},
		{"HoldfastEC2Throttled", one(`aws_ebs_csi_api_request_throttles_total{operation_name="CreateVolume"}`, "0+60x30 1800x30"), "9m", "12m", "40m"},
		{"HoldfastEC2Fails", one(`aws_ebs_csi_api_request_errors_total{request="CreateVolume",code="c"}`, "0+60x40 2400x30"), "14m", "17m", "50m"},
		{"HoldfastDetachBusy", one(`aws_ebs_csi_ec2_detach_pending_seconds_total{volume_id="v",instance_id="i",attachment_state="busy"}`, "0+60x30 stale"), "9m", "11m", "45m"},
	}
}

func one(series, values string) map[string]string { return map[string]string{series: values} }

func pool(available string) map[string]string {
	return map[string]string{"holdfast_pool_available_bytes" + local: available, "holdfast_pool_size_bytes" + local: "100x60"}
}

func condition(name string) map[string]string {
	return one(fmt.Sprintf(`holdfast_pool_condition{driver_name="d",pool="/p",condition=%q}`, name), "1x90 stale")
}

func (u unit) names() []string {
	if u.alert == "" {
		return nil
	}
	return strings.Split(u.alert, "+")
}

// test is the unit in promtool's format.
func (u unit) test() map[string]any {
	var series []map[string]any
	for name, values := range u.series {
		series = append(series, map[string]any{"series": name, "values": values})
	}
	var firing []map[string]any
	for _, name := range u.names() {
		firing = append(firing, map[string]any{"labels": fmt.Sprintf("{alertname=%q}", name), "value": 1})
	}
	const fire = `group by (alertname) (ALERTS{alertstate="firing"})`
	checks := []map[string]any{{"expr": fire, "eval_time": u.fires, "exp_samples": firing}}
	for _, at := range []string{u.quiet, u.ended} {
		if at != "" {
			checks = append(checks, map[string]any{"expr": fire, "eval_time": at, "exp_samples": []any{}})
		}
	}
	return map[string]any{"name": u.alert, "interval": "1m", "input_series": series, "promql_expr_test": checks}
}

func TestUnits_coverEveryAlert(t *testing.T) {
	covered := map[string]bool{}
	for _, u := range units() {
		for _, name := range u.names() {
			covered[name] = true
		}
	}
	for _, alert := range rules.Alerts(rules.Clock{}) {
		if !covered[alert.Alert] {
			t.Errorf("no course of metrics for %s", alert.Alert)
		}
	}
}

// TestUnits_promtool has promtool check the rules and run the units against those that
// operators get.
func TestUnits_promtool(t *testing.T) {
	promtool := filepath.Join(os.Getenv("HOLDFAST_MONITORING_BIN"), "promtool")
	directory := t.TempDir()
	file, err := rules.File(rules.Clock{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var tests []map[string]any
	for _, u := range units() {
		tests = append(tests, u.test())
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "fuzzy_compare": true, "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"rules.yaml": file, "units.yaml": text} {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, arguments := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"}, {"test", "rules", "units.yaml"}} {
		command := exec.Command(promtool, arguments...)
		command.Dir = directory
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", arguments, err, output)
		}
	}
}
