# Windows: the proxy's binary, and its tests under wine; included by the Makefile.
# They run in a wine prefix of their own, HOLDFAST_WINE_DIR or the default of
# test/windows/wine/setup.sh, which is made, and wine installed, if need be.

WINDOWS_BUILD = CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)'

build: bin/csi-proxy.exe

.PHONY: bin/csi-proxy.exe
bin/csi-proxy.exe:
	$(WINDOWS_BUILD) -o $@ ./cmd/csi-proxy

# The same on a simulated machine, for tests and for authors of plugins.
.PHONY: bin/csi-proxy-simulated.exe
bin/csi-proxy-simulated.exe:
	$(WINDOWS_BUILD) -o $@ ./simulation/windows/cmd/csi-proxy-simulated

# The proxy stays small: it shares the node with all other programs.
PROXY_SIZE_LIMIT := 20000000
.PHONY: size-windows
size: size-windows
size-windows: bin/csi-proxy.exe
	test/check-size bin/csi-proxy.exe $(PROXY_SIZE_LIMIT)

# The proxy and what is about Windows, under wine: the packages that do, and
# csi-proxy.exe as a whole. Short is what .ci/run has, in about three minutes.
.PHONY: test-windows test-windows-short
test-windows-short: bin/csi-proxy.exe bin/csi-proxy-simulated.exe
	GO="$(GO)" test/windows/run short
test-windows: bin/csi-proxy.exe bin/csi-proxy-simulated.exe
	GO="$(GO)" test/windows/run all

# Pipes: latency and throughput by the number of clients, and idle memory. With
# REFERENCE=FILE another csi-proxy.exe is measured in turn with ours.
.PHONY: bench-windows
bench-windows: bin/csi-proxy.exe
	test/windows/wine/setup.sh
	$(WINDOWS_BUILD) -o bin/bench-windows.exe ./test/windows/bench
	trap 'test/windows/wine/setup.sh --stop' EXIT; \
	test/windows/wine/run.sh bin/bench-windows.exe -proxy bin/csi-proxy.exe $(if $(REFERENCE),-reference $(REFERENCE))

