# Holdfast. `make run` shows it, `make test` proves it.
SHELL := /bin/bash
GO ?= go
# Loop devices and mounts need root; sudo only where it is not root already.
ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env PATH="$$PATH")
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# gRPC's trace pages reach html/template, whose reflection keeps every method of
# every Kubernetes client in the binary: 20 MB. Holdfast does not serve those pages.
TAGS := grpcnotrace
RUN_ROOT ?= /var/lib/holdfast

# One set of flags for what is built and what is tested, so that each package is
# compiled once.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -tags=$(TAGS)

.PHONY: build run test test-packages lint vet cross bench soak clean

build: bin/holdfast

.PHONY: bin/holdfast
bin/holdfast:
	$(GO) build -ldflags '$(LDFLAGS)' -o $@ ./cmd/holdfast

# One machine, one command: a volume, an inline scratch volume and a workload.
run: build test-packages
	$(ROOT) bin/holdfast run --root $(RUN_ROOT) -f examples/quickstart.yaml

# The whole life of an EBS volume on one machine: an EC2 emulator with real block
# devices, a controller and two nodes.
.PHONY: run-ebs bin/ec2emu
run-ebs: build bin/ec2emu test-packages
	$(ISOLATED) $(GO) run ./test/ebs/demo -holdfast bin/holdfast -emulator bin/ec2emu

bin/ec2emu:
	$(GO) build -ldflags '-s -w' -o $@ ./cmd/ec2emu

# The tables of EBS in docs/reference/benchmarks.md. REFERENCE=FILE, a binary of
# the AWS EBS CSI driver, is measured together with it in the same run.
.PHONY: bench-ebs
bench-ebs: build bin/ec2emu
	$(GO) run ./test/ebs/bench -holdfast bin/holdfast -emulator bin/ec2emu $(if $(REFERENCE),-reference $(REFERENCE))
	$(GO) test -count=1 -v -timeout 60m -run TestThrottled ./internal/backend/ebs -throttled.volumes=5000

# Everything, on real loop devices and mounts: each test binary in a mount
# namespace of its own, so that packages run side by side. More of them than
# cores: half of their time is waiting.
ISOLATED := $(ROOT) $(CURDIR)/test/isolated
TEST_JOBS ?= 4
test: export HOLDFAST_TEST_BIN = $(CURDIR)/bin
test: test-packages size bin/ec2emu
	$(GO) build ./...
	$(MAKE) test-monitoring-short
	$(ROOT) $(GO) test -p $(TEST_JOBS) -timeout 30m -exec $(CURDIR)/test/isolated ./...
	$(MAKE) simulate-short

# What `make test` proves, and the local backend's sweeps whole on ext4 too and its
# model with 10,000 operations; `make test` runs there the operations that copy, and
# 4,000. Then 5,000 volumes of the ebs backend under EC2's throttling; `make test`
# takes 1,000. Then the packages that mount under the race detector, all tests
# under wine, the status page in a browser, the alerts with a Prometheus, each fuzz
# target for ten seconds, and a Debian that reboots and loses its power.
.PHONY: test-all
test-all: test
	$(ROOT) $(GO) test -tags=$(TAGS),testall -timeout 30m -exec $(CURDIR)/test/isolated -run 'TestCrash|TestFault|TestModel' ./internal/backend/local
	$(GO) test -timeout 30m -run TestThrottled ./internal/backend/ebs -throttled.volumes=5000
	$(MAKE) test-powercut
	$(MAKE) race-all
	$(MAKE) test-windows
	$(MAKE) test-status
	$(MAKE) test-monitoring
	$(MAKE) fuzz TIME=10s
	$(MAKE) test-machine

# Every fuzz target, or those that NAME matches, for TIME each, JOBS at a time. Targets
# that resolve paths or open stores work on scratch directories.
TIME ?= 10m
JOBS ?= 1
.PHONY: fuzz
fuzz:
	$(ROOT) env GO="$(GO)" test/isolated test/fuzz -t $(TIME) -j $(JOBS) $(if $(NAME),-n '$(NAME)') ./internal/... ./proto/... ./simulation/...

# A power cut after each flush of the writes below the pool of `local` and the host's
# store, with up to SUBSETS subsets of the unflushed writes each. `make test` tries 1 to 3.
SUBSETS ?= 64
POWERCUT_PACKAGES := ./internal/backend/local ./internal/host/store
.PHONY: test-powercut powercut-state
test-powercut: test-packages
	$(ROOT) $(GO) test -count=1 -v -timeout 6h -exec $(CURDIR)/test/isolated -run TestPowerCut_loses $(POWERCUT_PACKAGES) -powercut.subsets=$(SUBSETS)

# One state again, from a RECORDING that a failed test kept; STATE=-1 is all of them.
STATE ?= -1
powercut-state: test-packages
	$(ROOT) $(GO) test -count=1 -v -timeout 1h -exec $(CURDIR)/test/isolated -run TestPowerCut_loses \
		./internal/$(if $(findstring -host-,$(notdir $(RECORDING))),host/store,backend/local) \
		-powercut.recording=$(abspath $(RECORDING)) -powercut.subsets=$(SUBSETS) -powercut.state=$(STATE)

# The stripped binary, all doors and all backends, stays small.
SIZE_LIMIT := 45000000
.PHONY: size
size: bin/holdfast
	test/check-size bin/holdfast $(SIZE_LIMIT)

# Lines, packages, functions, imports and the binary: what each line counts is in
# docs/reference/verification.md.
.PHONY: stats
stats: bin/holdfast
	@$(GO) run ./test/stats -binary bin/holdfast

# The packages where goroutines meet, once more under the race detector. Those
# that mount take most of the time and add little: race-all has them too.
RACE := ./internal/concurrency ./internal/csi/... ./internal/linux/... \
	./internal/csiproxy/... ./internal/policy/... ./internal/backend/guard ./internal/backend/ebs/... \
	./internal/node/... ./internal/kube/... ./internal/host/... ./internal/status/... ./proto/... ./simulation/...
MOUNTING := /internal/linux/|/internal/node(/nodetest)?$$|/ebs/nodeside$$|/ec2emu/disk$$|/internal/host(/(binds|pods|volumeplugin|volumes|workload))?$$
race_test = $(ROOT) $(GO) test -p $(TEST_JOBS) -race -short -timeout 30m -exec $(CURDIR)/test/isolated
.PHONY: race race-all
race race-all: export CGO_ENABLED = 1
race: test-packages
	$(race_test) $$($(GO) list $(RACE) | grep -v -E '$(MOUNTING)')
race-all: test-packages
	$(race_test) $(RACE)

# Filesystem tools that volumes and their tests call.
test-packages:
	$(ROOT) test/install-packages

lint: bin/golangci-lint vet
	bin/golangci-lint run ./...

vet:
	$(GO) vet -tags $(TAGS),docs,kubernetes,machine,nvme,simulate,wine ./...
	$(GO) vet -tags $(TAGS),testall ./internal/backend/local
	cd test/status && $(GO) vet ./...

bin/golangci-lint: tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# Every package for Windows, tests included, and the command for macOS.
cross:
	GOOS=windows GOARCH=amd64 $(GO) vet -tags $(TAGS),wine ./...
	cd test/windows/upstream && GOOS=windows GOARCH=amd64 $(GO) vet ./...
	GOOS=windows GOARCH=arm64 $(GO) build -o /dev/null ./cmd/holdfast
	GOOS=windows GOARCH=arm64 $(GO) build -o /dev/null ./cmd/csi-proxy
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/holdfast

# The node engine, the local backend and csi-sanity on Debian's own kernel with
# every capability, in a virtual machine: growth of a mounted ext4 needs one that
# root of a container lacks. About 30 minutes without KVM.
.PHONY: test-vm
test-vm: test-packages
	$(ROOT) test/vm/install-packages
	GO="$(GO)" test/vm/run

# The node half of the EBS backend on NVMe disks that come, go and grow, in the
# same kind of machine. About two minutes.
.PHONY: test-nvme
test-nvme: test-packages
	$(ROOT) test/vm/install-packages
	GO="$(GO)" test/nvme/run

# A whole Debian under QEMU (docs/guides/machine-laboratory.md): what its disk loses,
# one reboot and one power cut under load, a host that hangs, a container of Quadlet.
# The nightly target has 200 reboots and power cuts, and all tests.
MACHINE_TEST ?= Machine|Rounds|Watchdog|Quadlet
MACHINE_REBOOTS ?= 1
MACHINE_CUTS ?= 1
MACHINE_SEED ?= 0
MACHINE_TIMEOUT ?= 3h
machine_test = $(ROOT) $(GO) test -tags $(TAGS),machine -count=1 -v -timeout $(MACHINE_TIMEOUT) ./test/machine \
	-run '$(MACHINE_TEST)' -machine.reboots=$(MACHINE_REBOOTS) -machine.cuts=$(MACHINE_CUTS) -machine.seed=$(MACHINE_SEED) \
	$(if $(MACHINE_KEEP),-machine.keep=$(abspath $(MACHINE_KEEP)))
.PHONY: test-machine test-machine-nightly bin/machine-guest
test-machine test-machine-kubernetes test-machine-nightly: export HOLDFAST_TEST_BIN = $(CURDIR)/bin
test-machine: bin/holdfast bin/machine-guest
	$(ROOT) test/machine/install-packages
	$(machine_test)

test-machine-nightly: MACHINE_TEST = .
test-machine-nightly: MACHINE_REBOOTS = 200
test-machine-nightly: MACHINE_CUTS = 200
test-machine-nightly: MACHINE_TIMEOUT = 48h
test-machine-nightly: test-machine

bin/machine-guest:
	$(GO) build -ldflags '-s -w' -o $@ ./test/machine/guest

# The first table of docs/reference/benchmarks.md; that of Kubernetes is by
# bench-kubernetes.
bench: build test-packages
	$(ROOT) $(GO) run ./test/bench -holdfast bin/holdfast -write docs/reference/benchmarks.md
	$(MAKE) plots

# The pictures of docs/reference/benchmarks.md, drawn from its tables.
.PHONY: plots
plots:
	$(GO) test -C test/bench/plot .
	$(GO) run -C test/bench/plot . -page $(CURDIR)/docs/reference/benchmarks.md -out $(CURDIR)/docs/reference/benchmarks

# Each image of test/corpus, damaged or foreign, on a real loop device: none may
# be formatted. `make test` tries every 40th.
.PHONY: test-blank
test-blank: test-packages
	$(ISOLATED) $(GO) test -count=1 -v -timeout 30m -run TestFormat_noImageOfTheCorpus ./internal/node -corpus.whole

# The commands of README, tutorials and guides, as they are written, on a scratch
# machine of namespaces and copies. What does not run says why in its page.
.PHONY: test-docs
test-docs: export HOLDFAST_TEST_BIN = $(CURDIR)/bin
test-docs: test-packages build
	$(ROOT) $(GO) test -tags $(TAGS),docs -count=1 -v -timeout 30m -exec $(CURDIR)/test/isolated ./test/docs

# The pages about clusters in the same way, each on a Kubernetes of its own.
.PHONY: test-docs-kubernetes
test-docs-kubernetes: export HOLDFAST_TEST_BIN = $(CURDIR)/bin
test-docs-kubernetes: test-packages build kubernetes-binaries bin/helm
	$(ROOT) $(GO) test -tags $(TAGS),docs -count=1 -v -timeout 30m -exec $(CURDIR)/test/isolated ./test/docs -docs.cluster

# The status page in a headless Chromium, with real volumes and with 1,000, and the types
# of its script. PICTURES=DIRECTORY writes those of the documentation, which are in
# docs/tutorials/images.
.PHONY: test-status
test-status: export HOLDFAST_TEST_BIN = $(CURDIR)/bin
test-status: test-packages bin/holdfast
	$(ROOT) test/status/install-packages
	cd test/status && npm ci --no-audit --no-fund && npx tsc --project .
	cd test/status && $(GO) vet ./... && $(ROOT) $(GO) test -count=1 -v -timeout 30m -exec $(CURDIR)/test/isolated . $(if $(PICTURES),-status.screenshots $(abspath $(PICTURES)))

# Random operations without end: of a host and two drivers that are killed at any
# moment (some ten minutes, -soak.operations and -soak.seed say which), and ten
# times those of `make test` of the backends.
soak: soak-host
	for seed in 1 2 3 4 5 6 7 8 9 10; do $(GO) test -count=1 -run 'TestChaos|TestPrompt' ./internal/backend/ebs -chaos.seed=$$seed || exit 1; done
	$(ISOLATED) $(GO) test -count=1 -timeout 2h -run 'TestModel|TestCrash' ./internal/backend/local -rapid.checks=1000

.PHONY: soak-host
soak-host: test-packages
	for seed in 1 2 3; do $(ISOLATED) $(GO) test -count=1 -timeout 1h -run TestSoak ./test/host -soak.operations=2000 -soak.seed=$$seed || exit 1; done

clean:
	rm -rf bin

include simulation/lab/simulation.mk
include deploy/deploy.mk
include deploy/monitoring/monitoring.mk
include test/kubernetes/kubernetes.mk
include proto/proto.mk
include test/windows/windows.mk
