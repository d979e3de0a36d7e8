# Alerts, dashboards and their proof: docs/guides/monitoring.md.

MONITORING_BIN := $(CURDIR)/bin/monitoring
# The nested module is built without the tag that keeps the main binary small.
monitoring_go := cd deploy/monitoring && GOFLAGS=-trimpath $(GO)

.PHONY: monitoring test-monitoring-short test-monitoring
# The rule file and the dashboards in the chart, and docs/reference/alerts.md.
monitoring:
	$(monitoring_go) run ./generate

# What needs no Prometheus: files equal the code, runbooks equal the alerts.
test-monitoring-short:
	$(monitoring_go) test ./dashboards ./files ./rules

# Prometheus and promtool, of the version in deploy/monitoring/go.mod, without the
# service discovery of clouds. Some minutes, the first time.
$(MONITORING_BIN)/promtool: deploy/monitoring/go.mod deploy/monitoring/go.sum
	$(monitoring_go) build -tags remove_all_sd -ldflags '-s -w' -o $(MONITORING_BIN)/ \
		github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool
	touch $@

# A real Prometheus scrapes the running parts, every query of the dashboards returns
# data, and each alert fires by a fault and stops after the repair.
test-monitoring: export HOLDFAST_TEST_BIN = $(CURDIR)/bin
test-monitoring: export HOLDFAST_MONITORING_BIN = $(MONITORING_BIN)
test-monitoring: test-packages bin/holdfast bin/ec2emu $(MONITORING_BIN)/promtool test-monitoring-short
	cd deploy/monitoring && GOFLAGS=-trimpath $(GO) vet -tags monitoring ./...
	cd deploy/monitoring && GOFLAGS=-trimpath $(ROOT) $(GO) test -tags monitoring -count=1 -v -timeout 45m \
		-exec $(CURDIR)/test/isolated ./rules ./e2e
