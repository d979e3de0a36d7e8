# The cluster of test/kubernetes: its programs, its images, and how to run it.
# Everything is built from Go modules or comes from Debian packages.

KUBERNETES_BIN := $(CURDIR)/bin/kubernetes
# Where `make cluster-up` keeps its state, volumes included.
CLUSTER_DIR ?= /var/lib/holdfast-cluster
# Such as CLUSTER_FLAGS='-nodes 3 -feature-gates CSIVolumeHealth=true'
CLUSTER_FLAGS ?=

kubernetes_sources := $(shell find test/kubernetes -name '*.go' -not -name '*_test.go')
kubernetes_module := test/kubernetes/go.mod test/kubernetes/go.sum
kubernetes_programs := etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl containerd
# The nested module is built without the tag that keeps the main binary small.
kubernetes_go := cd test/kubernetes && GOFLAGS=-trimpath $(GO)
kubernetes_version = $$($(GO) list -C test/kubernetes -m -f '{{.Version}}' k8s.io/kubernetes)
crds_of = $$($(GO) list -C test/kubernetes -m -f '{{.Dir}}' $(1))/config/crd

.PHONY: kubernetes-binaries kubernetes-packages kubernetes-images
kubernetes-binaries: kubernetes-packages $(KUBERNETES_BIN)/kube $(KUBERNETES_BIN)/snapshot-controller \
	$(KUBERNETES_BIN)/cluster $(KUBERNETES_BIN)/crds kubernetes-images
kubernetes-images: $(KUBERNETES_BIN)/images.tar

kubernetes-packages:
	$(ROOT) test/kubernetes/install-packages

# The first time this takes some minutes: Kubernetes and containerd are compiled.
$(KUBERNETES_BIN)/kube: $(kubernetes_module) $(wildcard test/kubernetes/cmd/kube/*.go test/kubernetes/programs/*.go)
	version=$(kubernetes_version); p=k8s.io/component-base/version; v=$${version#v}; $(kubernetes_go) build -trimpath \
		-ldflags "-s -w -X $$p.gitVersion=$$version -X $$p.gitMajor=$${v%%.*} -X $$p.gitMinor=$$(cut -d. -f2 <<<$$v) -X $$p.gitTreeState=clean" \
		-o $@ ./cmd/kube
	cd $(KUBERNETES_BIN) && for name in $(kubernetes_programs); do ln -sfn kube $$name; done

# containerd's own programs, and the cluster-wide controller of snapshots.
$(KUBERNETES_BIN)/snapshot-controller: $(kubernetes_module)
	$(kubernetes_go) build -trimpath -ldflags '-s -w' -o $(KUBERNETES_BIN)/ \
		github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 github.com/containerd/containerd/v2/cmd/ctr \
		github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller

$(KUBERNETES_BIN)/cluster: $(kubernetes_module) $(kubernetes_sources)
	$(kubernetes_go) build -trimpath -o $@ ./cmd/cluster

# The definitions of snapshots and group snapshots, and of ReferenceGrants, from the
# modules of their clients.
snapshots_module := github.com/kubernetes-csi/external-snapshotter/client/v8
gateway_module := sigs.k8s.io/gateway-api
$(KUBERNETES_BIN)/crds: $(kubernetes_module)
	$(GO) -C test/kubernetes mod download $(snapshots_module) $(gateway_module)
	rm -rf $@ && mkdir -p $@ && install -m 644 $(call crds_of,$(snapshots_module))/*.storage.k8s.io_*.yaml \
		$(call crds_of,$(gateway_module))/standard/gateway.networking.k8s.io_referencegrants.yaml $@

$(KUBERNETES_BIN)/images.tar: $(kubernetes_module) $(wildcard test/kubernetes/images/*.go test/kubernetes/cmd/images/*.go) | kubernetes-packages
	$(kubernetes_go) run ./cmd/images -o $@

.PHONY: cluster-up cluster-down test-kubernetes test-kubernetes-short
# A cluster of two nodes on this machine, for kubectl and for trying things out.
cluster-up: kubernetes-binaries
	$(ROOT) $(KUBERNETES_BIN)/cluster up -dir $(CLUSTER_DIR) -image $(KUBERNETES_BIN)/images.tar $(CLUSTER_FLAGS)

cluster-down:
	$(ROOT) $(KUBERNETES_BIN)/cluster down -dir $(CLUSTER_DIR)

# The tests that need a cluster; each starts its own, and fails if anything of it
# is left. -trimpath and without cgo as the programs above: compiled once.
kubernetes_test := cd test/kubernetes && GOFLAGS=-trimpath $(ROOT) $(GO) test -p 1 -parallel 6 -count=1
# test/faults is in the main module, for the driver in memory that is there. It
# needs an API server only, and waits most of its time.
faults_test := $(ROOT) env HOLDFAST_KUBERNETES=$(KUBERNETES_BIN) $(GO) test -tags $(TAGS),kubernetes -count=1 -parallel 8 -timeout 20m ./test/faults
.PHONY: test-faults
test-faults: kubernetes-binaries
	$(faults_test)

test-kubernetes: kubernetes-binaries image bin/helm $(KUBERNETES_BIN)/simulated $(KUBERNETES_BIN)/ec2emu $(KUBERNETES_BIN)/scale
	$(kubernetes_test) -v -timeout 90m ./e2e
	$(kubernetes_test) -timeout 30m $$($(GO) list ./... | grep -v -e /conformance/suite -e /e2e)
	$(faults_test)

# What a change must pass at least: a volume is written and read again, restored
# from a snapshot, used as a block device and within a pod's definition.
# With KUBERNETES_VERSION=1.34.4, and the like, the control plane and the kubelets are of
# that version: 1.34 is the oldest that the chart accepts.
KUBERNETES_VERSION ?=
other_bin := $(CURDIR)/bin/kubernetes-$(KUBERNETES_VERSION)
test-kubernetes-short: export HOLDFAST_KUBERNETES := $(if $(KUBERNETES_VERSION),$(other_bin))
test-kubernetes-short: kubernetes-binaries image bin/helm $(KUBERNETES_BIN)/ec2emu $(if $(KUBERNETES_VERSION),$(other_bin)/kubernetes)
	$(kubernetes_test) -short -v -timeout 15m -run 'TestHoldfast|TestEBS' ./e2e

$(other_bin)/kubernetes: test/kubernetes/other-version $(wildcard test/kubernetes/programs/*.go test/kubernetes/cmd/kubernetes/*.go) | kubernetes-binaries
	GO=$(GO) test/kubernetes/other-version $(KUBERNETES_VERSION) $(KUBERNETES_BIN) $(@D)

# The short ones with a machine of test/machine as the only node: a Debian with the newest
# kernel, systemd and version 2 of control groups.
machine_node := kubernetes-binaries image bin/helm $(KUBERNETES_BIN)/holdfast-e2e.test
.PHONY: test-machine-kubernetes $(KUBERNETES_BIN)/holdfast-e2e.test
test-machine-kubernetes: MACHINE_TEST = Kubernetes
test-machine-kubernetes: $(machine_node) test-machine
test-machine-nightly: $(machine_node)

$(KUBERNETES_BIN)/holdfast-e2e.test:
	$(kubernetes_go) test -c -vet=off -trimpath -ldflags '-s -w' -o $@ ./e2e

.PHONY: conformance conformance-binaries
conformance-binaries: kubernetes-binaries $(KUBERNETES_BIN)/e2e.test $(KUBERNETES_BIN)/ginkgo

$(KUBERNETES_BIN)/e2e.test: $(kubernetes_module) $(wildcard test/kubernetes/conformance/suite/*.go)
	$(kubernetes_go) test -c -vet=off -trimpath -ldflags '-s -w' -o $@ ./conformance/suite

$(KUBERNETES_BIN)/ginkgo: $(kubernetes_module)
	$(kubernetes_go) build -trimpath -o $@ github.com/onsi/ginkgo/v2/ginkgo

# The Kubernetes project's own suite for CSI drivers, on a cluster of its own with
# the driver from the chart: docs/reference/conformance.md, whose lists it writes.
# Such as CONFORMANCE_FLAGS='-passes ext4 -focus subPath'.
CONFORMANCE_FLAGS ?=
conformance: conformance-binaries image bin/helm
	cd test/kubernetes && $(GO) build -o $(KUBERNETES_BIN)/conformance ./conformance
	cd test/kubernetes && $(ROOT) $(KUBERNETES_BIN)/conformance -write ../../docs/reference/conformance.md $(CONFORMANCE_FLAGS)

# The tables of Kubernetes in docs/reference/benchmarks.md: storms, memory, pods.
# Half an hour on an idle machine. Such as BENCH_FLAGS='-only storm -claims 200' or,
# to measure other programs in the same run, BENCH_FLAGS='-alternative "PROGRAM FLAGS"'.
BENCH_FLAGS ?= -write ../../docs/reference/benchmarks.md
.PHONY: bench-kubernetes
bench-kubernetes: kubernetes-binaries build image bin/helm $(KUBERNETES_BIN)/simulated
	$(kubernetes_go) build -trimpath -o $(KUBERNETES_BIN)/bench ./bench
	cd test/kubernetes && $(ROOT) $(KUBERNETES_BIN)/bench -image-repository=$(IMAGE_REPOSITORY) -image-tag=$(IMAGE_TAG) $(BENCH_FLAGS)
	$(MAKE) plots

# Clusters of many nodes: what a restart of all of them and the life of a claim cost the
# API server. With -few it also compares nodes that watch everything and, with -alternative,
# another provisioner on each node; -results keeps what was measured for a later run:
# make bench-scale SCALE_FLAGS='-nodes 200 -objects 100000 -few 5 -alternative "PATH/csi-provisioner --node-deployment"'
SCALE_FLAGS ?= -nodes 1000 -objects 20000 -few 30
.PHONY: bench-scale
bench-scale: kubernetes-binaries build bin/helm $(KUBERNETES_BIN)/scale
	$(kubernetes_go) build -trimpath -o $(KUBERNETES_BIN)/bench ./bench
	cd test/kubernetes && $(ROOT) $(KUBERNETES_BIN)/bench -only scale -write ../../docs/reference/benchmarks.md $(SCALE_FLAGS)
	$(MAKE) plots

# The controllers of many nodes in one process.
$(KUBERNETES_BIN)/scale: $(shell find test/scale simulation/csidriver internal/kube -name '*.go' -not -name '*_test.go')
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -o $@ ./test/scale

# A driver that attaches, in memory.
$(KUBERNETES_BIN)/simulated: $(wildcard test/simulated/*.go simulation/csidriver/*.go)
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -o $@ ./test/simulated

# The EC2 emulator, which runs outside the cluster.
$(KUBERNETES_BIN)/ec2emu: $(shell find cmd/ec2emu simulation/ec2emu -name '*.go' -not -name '*_test.go')
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -o $@ ./cmd/ec2emu
