# Windows: the proxy's binary, and its tests under wine; included by the Makefile.
# They run in a wine prefix of their own, HOLDFAST_WINE_DIR or the default of
# test/windows/wine/setup.sh, which is made, and wine installed, if need be.

WINDOWS_BUILD = CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)'

build: bin/csi-proxy.exe

.PHONY: bin/csi-proxy.exe
bin/csi-proxy.exe:
	$(WINDOWS_BUILD) -o $@ ./cmd/csi-proxy

# The proxy stays small: a node has it beside everything else.
PROXY_SIZE_LIMIT := 20000000
.PHONY: size-windows
size: size-windows
size-windows: bin/csi-proxy.exe
	test/check-size bin/csi-proxy.exe $(PROXY_SIZE_LIMIT)

# The proxy and what is about Windows, under wine: the packages that do, and
# csi-proxy.exe as a whole. Short is what .ci/run has, in about three minutes.
.PHONY: test-windows test-windows-short
test-windows-short: bin/csi-proxy.exe
	GO="$(GO)" test/windows/run short
test-windows: bin/csi-proxy.exe
	GO="$(GO)" test/windows/run all
