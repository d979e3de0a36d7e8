package lifecycle

import (
	"errors"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// IsAbsent reports whether a call failed because the driver lacks the object: NOT_FOUND.
func IsAbsent(failure error) bool { return errors.Is(failure, backend.ErrNotFound) }

// Rejects reports whether a call failed because of its request, such as a class with
// parameters that the driver does not accept: INVALID_ARGUMENT.
func Rejects(failure error) bool { return errors.Is(failure, backend.ErrInvalid) }

// UndoneWithoutCall reports whether NodeUnpublishVolume or NodeUnstageVolume, which
// failed, has nothing to undo if nothing is mounted at the path: the driver does not
// know the volume, or it does not stage any more (staging).
func UndoneWithoutCall(failure error, staging bool) bool {
	return IsAbsent(failure) || staging && errors.Is(failure, backend.ErrUnsupported)
}
