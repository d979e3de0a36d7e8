//go:build !linux

// Package nodetest helps the tests that work on real loop devices and mounts,
// which Linux alone has.
package nodetest
