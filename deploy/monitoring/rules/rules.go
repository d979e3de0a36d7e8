// Package rules is the one home of Holdfast's recording rules and alerts. The rule
// file, the chart's PrometheusRule and the tests are made from it.
package rules

import (
	"bytes"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

// Runbooks is where the page of each alert is, NAME.md.
const Runbooks = "https://github.com/holdfast-csi/holdfast/blob/main/docs/runbooks/"

// Severities of alerts.
const (
	critical = "critical" // data or running workloads are at risk: now
	warning  = "warning"  // a person has to act within working hours
)

// alert is one alert before its times are known.
type alert struct {
	name     string
	severity string
	expr     string
	after    time.Duration // for which expr must hold
	summary  string        // what is wrong, with the labels that name it
	impact   string        // what that means for volumes and workloads
}

// Groups returns the groups of rules in the order of the file.
func Groups(clock Clock) []rulefmt.RuleGroup {
	groups := []rulefmt.RuleGroup{{Name: "holdfast-recording", Rules: recording(clock)}}
	for _, g := range []struct {
		name   string
		alerts []alert
	}{
		{"holdfast-storage", storage(clock)},
		{"holdfast-drivers", drivers(clock)},
		{"holdfast-controllers", controllers(clock)},
		{"holdfast-ebs", ebs(clock)},
	} {
		group := rulefmt.RuleGroup{Name: g.name}
		for _, a := range g.alerts {
			group.Rules = append(group.Rules, a.rule(clock))
		}
		groups = append(groups, group)
	}
	return groups
}

func (a alert) rule(clock Clock) rulefmt.Rule {
	return rulefmt.Rule{
		Alert: a.name, Expr: a.expr, For: clock.wait(a.after),
		Labels: map[string]string{"severity": a.severity},
		Annotations: map[string]string{
			"summary": a.summary, "description": a.impact, "runbook_url": Runbooks + a.name + ".md",
		},
	}
}

// Alerts returns the alerts of all groups, sorted by name.
func Alerts(clock Clock) []rulefmt.Rule {
	var alerts []rulefmt.Rule
	for _, group := range Groups(clock) {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				alerts = append(alerts, rule)
			}
		}
	}
	slices.SortFunc(alerts, func(a, b rulefmt.Rule) int { return bytes.Compare([]byte(a.Alert), []byte(b.Alert)) })
	return alerts
}

// File returns the rule file that Prometheus reads. Groups are evaluated every
// interval; 0 leaves that to Prometheus.
func File(clock Clock, interval time.Duration) ([]byte, error) {
	groups := Groups(clock)
	for i := range groups {
		groups[i].Interval = model.Duration(interval)
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(rulefmt.RuleGroups{Groups: groups}); err != nil {
		return nil, err
	}
	return text.Bytes(), encoder.Close()
}
