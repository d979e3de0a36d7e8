//go:build !linux

package unixsocket

import "syscall"

// ownerOnly does nothing where a socket's mode can only be changed after bind,
// as Listen does.
func ownerOnly(string, string, syscall.RawConn) error { return nil }
