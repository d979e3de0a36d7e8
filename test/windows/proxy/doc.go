// Package proxy has the tests of csi-proxy.exe as a whole: its processes, its
// service and its pipes. They are themselves a Windows program, which runs under
// wine next to the proxy, so they have the build tag wine and are run by make
// test-windows, with HOLDFAST_CSI_PROXY naming the executable, and
// HOLDFAST_CSI_PROXY_SIMULATED the one that works on a simulated machine.
package proxy
