package workload

import "github.com/holdfast-csi/holdfast/internal/host/workload/inside"

// Copy names what Shim.Copy copies.
type Copy = inside.CopyOrder
