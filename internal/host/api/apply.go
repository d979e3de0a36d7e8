package api

import "errors"

// Errors of Apply and DeleteObject, wrapped with the name of the object.
var (
	// ErrInvalid means that the given objects are invalid: a field that is
	// unknown, that cannot be honoured or that cannot be changed.
	ErrInvalid = errors.New("invalid")
	// ErrConflict means that the object is not the one that the caller knows:
	// another UID, another resourceVersion, or it is being deleted.
	ErrConflict = errors.New("conflict")
	// ErrNotFound means that the object does not exist.
	ErrNotFound = errors.New("not found")
	// ErrForbidden means that the caller may not write the object, or that a policy
	// refuses it.
	ErrForbidden = errors.New("forbidden")
)

// ApplyOptions are the options of Apply.
type ApplyOptions struct {
	// DryRun checks everything and writes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Create refuses to change an object that exists: ErrConflict names what differs
	// from it. One that differs in nothing that is given is Unchanged.
	Create bool `json:"create,omitempty"`
	// Run is for a caller that runs the pods of the files itself, once, and makes
	// a hold for each: the pods are checked and not stored, an object that would
	// wait for another one is refused, and the call returns when every claim has
	// its volume. The error is that of the first claim that cannot get it; claims
	// without a volume are removed.
	Run bool `json:"run,omitempty"`
}

// Action says what Apply did to an object.
type Action string

// What Apply does.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
)

// Applied is the result of applying one object.
type Applied struct {
	Kind   string `json:"kind"`
	Key    string `json:"key"` // store.Key, or the name
	Action Action `json:"action"`
}

// ApplyResult has the results of all objects, in the order in which they were given.
type ApplyResult struct {
	Applied []Applied `json:"applied"`
	// Warnings are sentences for the user: fields without a meaning here, and
	// what objects wait for.
	Warnings []string `json:"warnings,omitempty"`
}

// DeleteOptions are the options of DeleteObject. Empty fields are not compared.
type DeleteOptions struct {
	// UID and ResourceVersion, if set, must be the object's; otherwise ErrConflict.
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Abandon deletes the object without waiting for its driver. Deleted.Waits names
	// what stays behind.
	Abandon bool `json:"abandon,omitempty"`
}

// Deleted is the result of deleting one object.
type Deleted struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
	// Waits names the reasons of a deletion that is not complete, such as the users of
	// the volume, and warnings for the user.
	Waits []string `json:"waits,omitempty"`
	// Gone reports that the object does not exist any more. Otherwise its deletion has
	// begun, and the host completes it.
	Gone bool `json:"gone"`
}
