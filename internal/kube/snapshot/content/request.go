package content

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Request is the part of a creation request that does not follow from the content's spec.
// It is recorded, because flags and classes change and a retry must send the same
// request. It contains no secret.
type Request struct {
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters,omitempty"`
}

func (r Request) encode() (string, error) {
	text, err := json.Marshal(r)
	return string(text), err
}

// Frozen reads the request that the driver was given, from a content's
// annotations; ok is false if there is none, as on contents that another
// controller has marked. Only with a mark or a recorded snapshot is it the
// request of a call whose effect counts.
func Frozen(annotations map[string]string) (request Request, ok bool, err error) {
	text, ok := annotations[claim.SnapshotRequestAnnotation]
	if !ok {
		return Request{}, false, nil
	}
	err = json.Unmarshal([]byte(text), &request)
	if err == nil && request.Name == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		return Request{}, true, fmt.Errorf("annotation %s: %w", claim.SnapshotRequestAnnotation, err)
	}
	return request, true, nil
}

// Kept explains a failed call after which the content keeps its mark.
func Kept(keys claim.SnapshotKeys, what string, outcome lifecycle.Outcome, failure error) error {
	if outcome == lifecycle.Quarantine {
		return fmt.Errorf("%w (an earlier call may have taken the %s, and the driver cannot report it; inspect the storage, then remove the annotation %s)",
			failure, what, keys.BeingCreated)
	}
	return fmt.Errorf("%w (the %s may still be taken: the same call is repeated)", failure, what)
}
