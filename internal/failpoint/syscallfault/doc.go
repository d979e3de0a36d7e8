// Package syscallfault lets a test fail system calls of the function under
// test, without a hook in the product: the function runs on its own thread under a
// seccomp filter that asks the test before each call (seccomp_unotify(2)).
//
// It needs Linux 5.5 and the right to install a filter, as root has it.
package syscallfault
