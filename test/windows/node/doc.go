// Package node tests the driver's node half on Windows as it is deployed, but for
// the disks: holdfast.exe under wine, over the pipe of csi-proxy-simulated.exe under wine,
// which works on a simulated machine; next to them, on Linux, an EC2 emulator, the
// controller, and csi-sanity, which calls holdfast.exe over TCP, since wine has no
// unix sockets.
//
// The tests have the build tag wine and are run by make test-windows.
// HOLDFAST_CSI_PROXY, HOLDFAST_CSI_PROXY_SIMULATED and HOLDFAST_NODE_EXE name the
// executables of Windows; those that are not named are built.
package node
