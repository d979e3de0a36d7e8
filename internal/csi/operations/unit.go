// Package operations is the service with which a driver answers what it is doing, next
// to CSI on its socket.
package operations

import "github.com/holdfast-csi/holdfast/internal/progress"

// UnitOf returns the message's word for a unit.
func UnitOf(unit progress.Unit) Unit {
	if unit == progress.Percent {
		return Unit_PERCENT
	}
	return Unit_BYTES
}

// Progress returns the unit of an operation.
func (u Unit) Progress() progress.Unit {
	if u == Unit_PERCENT {
		return progress.Percent
	}
	return progress.Bytes
}
