// Package upstream tries the proxy with the unmodified Go client of upstream's
// csi-proxy, which drivers in the field are built with: every group and every
// version that it has. The client is a separate module, since its
// messages and ours have the same names and one program cannot hold both.
//
// The tests run under wine, against a csi-proxy.exe that serves the simulated
// host; test/windows starts it and says in HOLDFAST_SIMULATED where its control
// is. What wine's own files can show is run once more against them: the tests of
// directories and paths, and the one of links that are not made, which is for
// nothing else.
package upstream
