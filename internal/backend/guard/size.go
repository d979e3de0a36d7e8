package guard

import (
	"fmt"
	"math"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// resolveSize decides the size of a new volume in bytes: the required size, at least
// the backend's minimum and the source's size, rounded up to the allocation unit,
// within the limit (CSI spec 1.13, CapacityRange).
func resolveSize(r backend.SizeRange, source int64, t backend.Traits) (int64, error) {
	if err := checkRange(r); err != nil {
		return 0, err
	}
	if source > 0 && r.Required > 0 && r.Required < source {
		return 0, fmt.Errorf("%w: required_bytes %d is below the %d bytes of the source; ask for at least those",
			backend.ErrOutOfRange, r.Required, source)
	}
	size, err := roundUp(max(desiredSize(r, source, t), t.MinimumSize, source), t.AllocationUnit)
	if err != nil {
		return 0, err
	}
	return size, checkSize(size, r, t)
}

// desiredSize is the required size of the request. Without one it is the default, or
// the limit if that is smaller.
func desiredSize(r backend.SizeRange, source int64, t backend.Traits) int64 {
	switch {
	case r.Required > 0:
		return r.Required
	case source > 0:
		return source
	case r.Limit > 0 && r.Limit < t.DefaultSize:
		return r.Limit - r.Limit%unit(t.AllocationUnit)
	}
	return t.DefaultSize
}

func checkRange(r backend.SizeRange) error {
	if r.Required < 0 || r.Limit < 0 {
		return fmt.Errorf("%w: capacity_range {required_bytes: %d, limit_bytes: %d}: a size cannot be negative",
			backend.ErrInvalid, r.Required, r.Limit)
	}
	if r.Limit > 0 && r.Limit < r.Required {
		return fmt.Errorf("%w: capacity_range: limit_bytes %d is below required_bytes %d",
			backend.ErrInvalid, r.Limit, r.Required)
	}
	return nil
}

// checkSize tests a rounded size against the request and the backend.
func checkSize(size int64, r backend.SizeRange, t backend.Traits) error {
	if t.MaximumSize > 0 && size > t.MaximumSize {
		return fmt.Errorf("%w: %d bytes are above the maximum of %d", backend.ErrOutOfRange, size, t.MaximumSize)
	}
	if r.Limit > 0 && size > r.Limit {
		return fmt.Errorf("%w: the smallest possible size, %d bytes (minimum %d, in steps of %d), is above limit_bytes %d",
			backend.ErrOutOfRange, size, t.MinimumSize, unit(t.AllocationUnit), r.Limit)
	}
	return nil
}

func roundUp(size, step int64) (int64, error) {
	step = unit(step)
	if size > math.MaxInt64-step {
		return 0, fmt.Errorf("%w: %d bytes cannot be rounded up to steps of %d", backend.ErrOutOfRange, size, step)
	}
	return (size + step - 1) / step * step, nil
}

// leastFor raises the minimum size of the backend to what the filesystems of the
// wanted uses need; the first of the backend is the one of a use that names none.
func leastFor(uses []backend.Capability, t backend.Traits) backend.Traits {
	for _, use := range uses {
		if use.Block {
			continue
		}
		name := use.FSType
		if name == "" && len(t.Filesystems) > 0 {
			name = t.Filesystems[0]
		}
		t.MinimumSize = max(t.MinimumSize, t.FilesystemMinimum[name])
	}
	return t
}

func unit(allocation int64) int64 { return max(allocation, 1) }

// fits reports whether an existing size satisfies a repeated request.
func fits(size int64, r backend.SizeRange) bool {
	return size >= r.Required && (r.Limit == 0 || size <= r.Limit)
}
