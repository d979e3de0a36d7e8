//go:build !linux

package mount

import "github.com/moby/sys/mountinfo"

// OfDevice needs Linux; on other systems Holdfast mounts nothing.
func OfDevice([]*mountinfo.Info, uint64) []*mountinfo.Info { return nil }

// ByDevice returns nothing: this system has no mounts.
func ByDevice([]*mountinfo.Info) map[uint64][]*mountinfo.Info { return nil }

// IsOfDevice is for Linux.
func IsOfDevice(*mountinfo.Info, uint64) bool { return false }

// OfNode is for Linux.
func OfNode([]*mountinfo.Info, string, uint64) []*mountinfo.Info { return nil }

// DeviceGone is for Linux.
func DeviceGone(uint64) bool { return false }

// SourceGone is for Linux.
func SourceGone(*mountinfo.Info) bool { return false }
