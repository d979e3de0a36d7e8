# Image, chart and manifests. See docs/guides/kubernetes.md.

IMAGE_REPOSITORY ?= holdfast.dev/holdfast
IMAGE_TAG ?= $(VERSION)
IMAGE_ARCH ?= $(shell $(GO) env GOARCH)
# The root of a Debian system that the image's programs come from: this
# machine's own, or one that deploy/image/fetch makes for another architecture.
IMAGE_ROOT ?= $(if $(filter $(IMAGE_ARCH),$(shell $(GO) env GOHOSTARCH)),/,bin/image-root-$(IMAGE_ARCH))
IMAGE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
IMAGE_REVISION := $(shell git rev-parse HEAD 2>/dev/null)

# bin/holdfast-image.tar for `ctr images import`, `docker load` and their like.
.PHONY: image
image: $(if $(filter /,$(IMAGE_ROOT)),test-packages,$(IMAGE_ROOT))
	mkdir -p bin/image
	CGO_ENABLED=0 GOOS=linux GOARCH=$(IMAGE_ARCH) $(GO) build -trimpath -tags grpcnotrace -ldflags '$(LDFLAGS)' -o bin/image/holdfast ./cmd/holdfast
	GOARCH= GOOS= $(GO) run ./deploy/image -root $(IMAGE_ROOT) -arch $(IMAGE_ARCH) -binary bin/image/holdfast -o bin/holdfast-image.tar \
		-name $(IMAGE_REPOSITORY):$(IMAGE_TAG) -version $(VERSION) -revision "$(IMAGE_REVISION)" -epoch $(IMAGE_EPOCH)

bin/image-root-%: deploy/image/fetch
	deploy/image/fetch $* $@

# The helm of the nested module deploy/test, for machines that have none.
bin/helm: deploy/test/go.mod deploy/test/go.sum
	cd deploy/test && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ../../$@ helm.sh/helm/v4/cmd/helm

.PHONY: manifests test-chart
# Plain manifests for those without Helm.
manifests:
	cd deploy/test && $(GO) run ./cmd/manifests

# The chart: values, objects, rights, manifests.
test-chart:
	cd deploy/test && $(GO) vet ./... && $(GO) test ./...
