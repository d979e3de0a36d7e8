package world

import (
	"fmt"
	"net/http"
	"strings"
)

// refuse is a client error, which EC2 answers with status 400.
func refuse(code, format string, arguments ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, arguments...), Status: http.StatusBadRequest}
}

func invalid(format string, arguments ...any) *Error {
	return refuse("InvalidParameterValue", format, arguments...)
}

func combination(format string, arguments ...any) *Error {
	return refuse("InvalidParameterCombination", format, arguments...)
}

func missing(parameter string) *Error {
	return refuse("MissingParameter", "The request must contain the parameter %s", parameter)
}

func incorrectState(format string, arguments ...any) *Error {
	return refuse("IncorrectState", format, arguments...)
}

func volumeNotFound(ids ...string) *Error {
	return notFound("InvalidVolume.NotFound", "volume", ids)
}

func snapshotNotFound(ids ...string) *Error {
	return notFound("InvalidSnapshot.NotFound", "snapshot", ids)
}

func instanceNotFound(ids ...string) *Error {
	if len(ids) == 1 {
		return refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", ids[0])
	}
	return refuse("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(ids, ", "))
}

func notFound(code, kind string, ids []string) *Error {
	if len(ids) == 1 {
		return refuse(code, "The %s '%s' does not exist.", kind, ids[0])
	}
	return refuse(code, "The %ss '%s' do not exist.", kind, strings.Join(ids, ", "))
}

// dryRunPassed is the answer of a dry run without an error.
func dryRunPassed() *Error {
	return &Error{Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set.",
		Status: http.StatusPreconditionFailed}
}

func internal(err error) *Error {
	return &Error{Code: "InternalError",
		Message: "An internal error has occurred: " + err.Error(), Status: http.StatusInternalServerError}
}

// malformed is the refusal of an ID that cannot be one: prefix and 8 or 17 hex digits.
func malformed(id, prefix, code string) *Error {
	digits, isID := strings.CutPrefix(id, prefix)
	if isID && (len(digits) == 8 || len(digits) == 17) && strings.Trim(digits, "0123456789abcdef") == "" {
		return nil
	}
	return refuse(code, "Invalid id: %q (expecting %q)", id, prefix+"...")
}

func checkVolumeID(id string) *Error {
	if id == "" {
		return missing("volumeId")
	}
	return malformed(id, "vol-", "InvalidVolumeID.Malformed")
}

func checkInstanceID(id string) *Error {
	if id == "" {
		return missing("instanceId")
	}
	return malformed(id, "i-", "InvalidInstanceID.Malformed")
}

func checkSnapshotID(id string) *Error {
	if id == "" {
		return missing("snapshotId")
	}
	return malformed(id, "snap-", "InvalidSnapshotID.Malformed")
}

func (e *Error) withStatus(status int) *Error {
	e.Status = status
	return e
}
