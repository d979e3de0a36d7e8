# Holdfast. `make run` shows it, `make test` proves it.
SHELL := /bin/bash
GO ?= go
# Loop devices and mounts need root; sudo only where it is not root already.
ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env PATH="$$PATH")
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# gRPC's trace pages reach html/template, whose reflection keeps every method of
# every Kubernetes client in the binary: 20 MB. Nobody serves those pages.
TAGS := grpcnotrace
RUN_ROOT ?= /var/lib/holdfast

.PHONY: build run test test-packages lint vet cross bench soak clean

build: bin/holdfast

.PHONY: bin/holdfast
bin/holdfast:
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $@ ./cmd/holdfast

# One machine, one command: a volume, an inline scratch volume and a workload.
run: build test-packages
	$(ROOT) bin/holdfast run --root $(RUN_ROOT) -f examples/quickstart.yaml

# The whole life of an EBS volume on one machine: an EC2 emulator with real block
# devices, a controller and two nodes.
.PHONY: run-ebs bin/ec2emu
run-ebs: build bin/ec2emu test-packages
	$(ISOLATED) $(GO) run ./test/ebs/demo -holdfast bin/holdfast -emulator bin/ec2emu

bin/ec2emu:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./cmd/ec2emu

# The tables of EBS in docs/reference/benchmarks.md. REFERENCE=FILE, a binary of
# the AWS EBS CSI driver, is measured beside it in the same run.
.PHONY: bench-ebs
bench-ebs: build bin/ec2emu
	$(GO) run ./test/ebs/bench -holdfast bin/holdfast -emulator bin/ec2emu $(if $(REFERENCE),-reference $(REFERENCE))
	$(GO) test -count=1 -v -timeout 60m -run TestThrottled ./internal/backend/ebs

# Everything, on real loop devices and mounts: in a mount namespace whose mounts
# are shared, as systemd leaves them, so that a namespace which one test makes
# does not keep the mounts of another busy; and package by package.
ISOLATED := $(ROOT) unshare --mount --propagation shared --
test: test-packages size
	$(GO) build ./...
	$(ROOT) $(GO) test -p 2 -timeout 30m $(SIDE_BY_SIDE)
	$(ISOLATED) $(GO) test -p 1 -timeout 30m $$(comm -23 <($(GO) list ./... | sort) <($(GO) list $(SIDE_BY_SIDE) | sort))

# No test of these mounts anything, and most of their time is waiting: two at a time.
SIDE_BY_SIDE := ./internal/keylock ./internal/csiclient/... ./internal/kube/... ./internal/batch ./internal/operation \
	./internal/winnode ./internal/csiproxy/... ./internal/policy/... ./proto/...

# The stripped binary, all doors and all backends, stays small.
SIZE_LIMIT := 40000000
.PHONY: size
size: bin/holdfast
	test/check-size bin/holdfast $(SIZE_LIMIT)

# The packages where goroutines meet, once more under the race detector.
RACE_ALONE := ./internal/backend/guard ./internal/driver/... ./internal/host/... ./internal/node/... \
	./internal/backend/ebs/... ./internal/ec2emu/...
.PHONY: race
race: test-packages
	$(GO) build -race $(SIDE_BY_SIDE) $(RACE_ALONE)
	$(ROOT) $(GO) test -p 2 -race -short -timeout 30m $(SIDE_BY_SIDE)
	$(ISOLATED) $(GO) test -p 1 -race -short -timeout 30m $(RACE_ALONE)

# Filesystem tools that volumes and their tests call.
test-packages:
	$(ROOT) test/install-packages

lint: bin/golangci-lint vet
	bin/golangci-lint run ./...

vet:
	$(GO) vet -tags kubernetes,nvme,wine ./...

bin/golangci-lint: tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# Every package for Windows, tests included, and the command for macOS.
cross:
	GOOS=windows GOARCH=amd64 $(GO) vet -tags wine ./...
	cd test/windows/upstream && GOOS=windows GOARCH=amd64 $(GO) vet ./...
	GOOS=windows GOARCH=arm64 $(GO) build -o /dev/null ./cmd/holdfast
	GOOS=windows GOARCH=arm64 $(GO) build -o /dev/null ./cmd/csi-proxy
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/holdfast

# The node engine, the local backend and csi-sanity on Debian's own kernel with
# every capability, in a virtual machine: growth of a mounted ext4 needs one that
# root of a container lacks. About five minutes; no KVM needed.
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

# The first table of docs/reference/benchmarks.md; that of Kubernetes is by
# bench-kubernetes.
bench: build test-packages
	$(ROOT) $(GO) run ./test/bench -holdfast bin/holdfast -write docs/reference/benchmarks.md

# Random operations without end: of a host and two drivers that are killed at any
# moment (some ten minutes, -soak.operations and -soak.seed say which), and ten
# times those of `make test` of the backends.
soak: soak-host
	for seed in 1 2 3 4 5 6 7 8 9 10; do $(GO) test -count=1 -run TestChaos ./internal/backend/ebs -chaos.seed=$$seed || exit 1; done
	$(ISOLATED) $(GO) test -count=1 -timeout 2h -run 'TestModel|TestCrash' ./internal/backend/local -rapid.checks=1000

.PHONY: soak-host
soak-host: test-packages
	for seed in 1 2 3; do $(ISOLATED) $(GO) test -count=1 -timeout 1h -run TestSoak ./test/host -soak.operations=2000 -soak.seed=$$seed || exit 1; done

clean:
	rm -rf bin

include deploy/deploy.mk
include test/kubernetes/kubernetes.mk
include proto/proto.mk
include test/windows/windows.mk
