package cloud

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Error is a call that failed. It wraps the sentinel of package backend for its
// code, and the context's error when that ended the call.
type Error struct {
	// Action of EC2, such as AttachVolume.
	Action string
	// Code is EC2's, such as IncorrectState; "" if EC2 did not answer.
	Code, Message, RequestID string
	// Uncertain reports that an answer was lost, so that the call may have had its effect.
	// The caller describes the resource before it repeats the call.
	Uncertain bool

	resource string // of the call
	sentinel error  // nil for a fault of the driver and for an unknown code
	ended    error  // the context's error, or nil
}

// Error names the action, the resource, EC2's answer and the next action.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Action)
	if e.resource != "" {
		b.WriteString(" " + e.resource)
	}
	b.WriteString(": " + firstOf(e.Message, "it failed without a message"))
	if e.Code != "" {
		b.WriteString(" (EC2 code " + e.Code)
		if e.RequestID != "" {
			b.WriteString(", request " + e.RequestID)
		}
		b.WriteString(")")
	}
	if e.ended != nil {
		b.WriteString("; " + e.ended.Error())
	}
	if advice := e.advice(); advice != "" {
		b.WriteString("; " + advice)
	}
	return b.String()
}

// Unwrap returns the sentinel and the context's error.
func (e *Error) Unwrap() []error {
	var all []error
	for _, err := range []error{e.ended, e.sentinel} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// Code is EC2's error code in err, or "".
func Code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Uncertain reports whether a failed call may have had its effect. Only an answer of EC2
// excludes that.
func Uncertain(err error) bool {
	var e *Error
	return err != nil && (!errors.As(err, &e) || e.Uncertain)
}

// DeviceNameTaken reports whether AttachVolume failed because of its device name, so that
// another name may succeed.
func DeviceNameTaken(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "InvalidDevice.InUse", "InvalidBlockDeviceMapping":
		return true
	case "InvalidParameterValue":
		return strings.Contains(e.Message, "already in use")
	}
	return false
}

// TokenSpent reports whether a client token belongs to a resource that was deleted or
// whose creation failed, so that the next token may succeed. The same code without that
// text means that the token's volume exists and differs from the request.
func TokenSpent(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == "IdempotentParameterMismatch" &&
		(strings.Contains(e.Message, "deleted") || strings.Contains(e.Message, "no longer exist"))
}

// row has the sentinel of a code and the advice for it.
type row struct {
	sentinel error
	advice   string
}

// rowOf finds the row of a code. The table may have the family of the code instead, the
// part before the first dot.
func rowOf(code string) (row, bool) {
	if r, known := table[code]; known {
		return r, true
	}
	family, _, has := strings.Cut(code, ".")
	r, known := table[family+".*"]
	return r, known && has
}

// outOfRange matches EC2's message for a size, IOPS or throughput outside its bounds.
var outOfRange = regexp.MustCompile(`(?i)\b(volume of|size|iops|throughput)\b.*\b(maximum|minimum|at least|at most|between|too (high|low|small|large|big)|exceeds?|greater than|less than)\b`)

// badID matches EC2's message for a malformed ID.
var badID = regexp.MustCompile(`(?i)\b(volume|instance|snapshot)[ -]?ids?\b`)

// sentinelOf is the sentinel of a code by the table and, for codes that EC2 uses for
// several faults, by the message.
func sentinelOf(code, message string) error {
	switch {
	case code == "InvalidParameterValue" && outOfRange.MatchString(message):
		return backend.ErrOutOfRange
	case code == "InvalidParameterValue" && badID.MatchString(message):
		return backend.ErrNotFound
	case code == "InvalidParameterValue" && strings.Contains(message, "already in use"):
		return nil // a device name: the caller tries another
	case code == "OperationNotPermitted" && strings.Contains(strings.ToLower(message), "managed"):
		return backend.ErrPrecondition
	}
	r, _ := rowOf(code)
	return r.sentinel
}

// advice is the next action, "" if the table has none.
func (e *Error) advice() string {
	switch {
	case errors.Is(e.sentinel, backend.ErrDenied):
		return e.permissionAdvice()
	case strings.Contains(strings.ToLower(e.Message), "kms") && e.Code != "":
		return kmsAdvice
	}
	r, _ := rowOf(e.Code)
	return r.advice
}

const (
	kmsAdvice = "check that the KMS key exists and is enabled in this region and that the driver's role has " +
		"kms:Decrypt, kms:GenerateDataKeyWithoutPlaintext and kms:CreateGrant on it"
	credentialsAdvice = "give the driver valid credentials (an IAM role for its service account, an instance profile, " +
		"or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) and check that the machine's clock is right"
)

// permissionAdvice names the missing IAM action.
func (e *Error) permissionAdvice() string {
	advice := "allow ec2:" + e.Action
	switch e.Action {
	case "CreateVolume", "CopyVolumes", "CreateSnapshot":
		advice += " (and ec2:CreateTags on it)"
	}
	if where := e.resource; where != "" {
		advice += " on " + where
	}
	advice += " in the policy of the driver's role; the managed policy only covers what carries the tag " + ManagedTag + "=true"
	if strings.Contains(e.Message, "Encoded authorization failure message") {
		advice += "; aws sts decode-authorization-message explains the refusal"
	}
	return advice
}

// missing is the error for a resource that a describe did not show.
func missing(action, kind, id, code string) error {
	return &Error{
		Action: action, Code: code, resource: id,
		Message:  fmt.Sprintf("this region has no %s %s", kind, id),
		sentinel: backend.ErrNotFound,
	}
}
