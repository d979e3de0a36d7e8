package cloud

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Every code of the reference and its sentinel. nil is a code without a meaning for
// a caller: a fault.
func TestTable_everyCodeHasItsSentinel(t *testing.T) {
	want := map[error]string{
		backend.ErrNotFound: `InvalidVolume.NotFound InvalidVolumeID.Malformed InvalidInstanceID.NotFound InvalidInstanceID.Malformed
			InvalidInstanceType InvalidAttachment.NotFound InvalidVolumeModification.NotFound InvalidSnapshot.NotFound InvalidSnapshotID.Malformed`,
		backend.ErrInUse:        `VolumeInUse InvalidSnapshot.InUse SnapshotLocked`,
		backend.ErrBusy:         `IncorrectState IncorrectModificationState`,
		backend.ErrPrecondition: `IncorrectInstanceState InvalidVolume.ZoneMismatch`,
		backend.ErrNoSpace: `AttachmentLimitExceeded VolumeLimitExceeded MaxIOPSLimitExceeded VolumeIOPSLimit VolumeModificationSizeLimitExceeded
			VolumeModificationRateExceeded SnapshotLimitExceeded ConcurrentSnapshotLimitExceeded SnapshotCreationPerVolumeRateExceeded
			ResourceLimitExceeded InsufficientVolumeCapacity InsufficientCapacity`,
		backend.ErrExists: `IdempotentParameterMismatch`,
		backend.ErrInvalid: `InvalidParameter InvalidParameterValue InvalidParameterCombination InvalidParameterDependency MissingParameter
			UnknownParameter UnknownVolumeType ValidationError InvalidAvailabilityZone Unsupported UnsupportedOperation OperationNotPermitted
			InvalidKmsKey.NotFound InvalidKmsKey.InvalidState InvalidKMSKey.Disabled KmsKeyNotFoundException KMSKeyNotAccessibleFault
			TagLimitExceeded InvalidTagKey.Malformed`,
		backend.ErrStaleToken:  `InvalidPaginationToken InvalidNextToken`,
		backend.ErrDenied:      `UnauthorizedOperation AccessDenied AccessDeniedException OptInRequired Blocked PendingVerification`,
		backend.ErrCredentials: `AuthFailure InvalidClientTokenId UnrecognizedClientException ExpiredToken ExpiredTokenException RequestExpired RequestTimeTooSkewed SignatureDoesNotMatch IncompleteSignature MissingAuthenticationToken`,
		backend.ErrUnavailable: `RequestLimitExceeded Throttling ThrottlingException ThrottledException RequestThrottled EC2ThrottledException BandwidthLimitExceeded SlowDown
			InternalError InternalFailure Unavailable ServiceUnavailable RequestTimeout RequestTimeoutException`,
		nil: `InvalidDevice.InUse InvalidBlockDeviceMapping FilterLimitExceeded SomethingNew`,
	}
	tested := map[string]bool{}
	for sentinel, codes := range want {
		for _, code := range strings.Fields(codes) {
			tested[code] = true
			err := error(&Error{Action: "X", Code: code, Message: "text", sentinel: sentinelOf(code, "text")})
			if sentinel != nil && !errors.Is(err, sentinel) {
				t.Errorf("%s is not %v", code, sentinel)
			}
			for other := range want {
				if other != nil && !errors.Is(other, sentinel) && errors.Is(err, other) {
					t.Errorf("%s is %v", code, other)
				}
			}
			if Code(err) != code {
				t.Errorf("the code of %s is %q", code, Code(err))
			}
		}
	}
	for code := range table {
		if family, ok := strings.CutSuffix(code, "*"); ok {
			code = family + "NotFound"
			tested[code] = tested[code] || tested[family+"Disabled"]
		}
		if !tested[code] {
			t.Errorf("%s is in the table and not in this test", code)
		}
	}
}

// One code of EC2 has several meanings; its text distinguishes them.
func TestSentinelOf_theMessageDecidesWhereTheCodeDoesNot(t *testing.T) {
	for _, c := range []struct {
		code, message string
		want          error
	}{
		{"InvalidParameterValue", "Volume of 70000GiB is too large for volume type gp3; maximum size is 65536GiB.", backend.ErrOutOfRange},
		{"InvalidParameterValue", "Volume iops of 90000 is too high; maximum is 80000.", backend.ErrOutOfRange},
		{"InvalidParameterValue", "Throughput must be between 125 and 2000", backend.ErrOutOfRange},
		{"InvalidParameterValue", "Value (vol-x) for parameter volumeId is invalid. Expected: 'vol-...'.", backend.ErrNotFound},
		{"InvalidParameterValue", "Value (purple) for parameter volumeType is invalid", backend.ErrInvalid},
		{"OperationNotPermitted", "You cannot modify a volume that is managed by another service", backend.ErrPrecondition},
	} {
		if got := sentinelOf(c.code, c.message); !errors.Is(got, c.want) {
			t.Errorf("%s %q is %v, want %v", c.code, c.message, got, c.want)
		}
	}
	if got := sentinelOf("InvalidParameterValue", "Invalid value '/dev/xvdaa' for unixDevice. Attachment point /dev/xvdaa is already in use"); got != nil {
		t.Errorf("a device name in use is %v, so that no other name is tried", got)
	}
}

func TestDeviceNameTaken_onlyForNames(t *testing.T) {
	for code, message := range map[string]string{"InvalidParameterValue": "/dev/xvdaa is already in use", "InvalidDevice.InUse": "", "InvalidBlockDeviceMapping": ""} {
		if !DeviceNameTaken(&Error{Code: code, Message: message}) {
			t.Errorf("%s %q is not a device name taken", code, message)
		}
	}
	for _, err := range []error{&Error{Code: "InvalidParameterValue", Message: "bad size"}, &Error{Code: "VolumeInUse", Message: "vol-1 is already in use"}, context.Canceled, nil} {
		if DeviceNameTaken(err) {
			t.Errorf("%v is a device name taken", err)
		}
	}
}

// The two meanings of a token that was used before.
func TestTokenSpent_onlyWhenItsResourceIsGone(t *testing.T) {
	mismatch := "IdempotentParameterMismatch"
	if !TokenSpent(&Error{Code: mismatch, Message: "The client token you have provided is associated with a resource that is already deleted."}) {
		t.Error("the token of a deleted volume is not spent")
	}
	if TokenSpent(&Error{Code: mismatch, Message: "The client token provided was used with different parameters and is inconsistent."}) {
		t.Error("the token of a living volume is spent")
	}
}

// A refusal names the tag that the managed policy asks for.
func TestError_saysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err  Error
		says []string
	}{
		{Error{Action: "AttachVolume", resource: "vol-1 to i-1", Code: "AttachmentLimitExceeded", Message: "too many", RequestID: "r-1"},
			[]string{"AttachVolume vol-1 to i-1: too many", "EC2 code AttachmentLimitExceeded, request r-1", "detach a volume"}},
		{Error{Action: "CreateVolume", Code: "UnauthorizedOperation", Message: "You are not authorized. Encoded authorization failure message: x"},
			[]string{"allow ec2:CreateVolume", "ec2:CreateTags", "decode-authorization-message"}},
		{Error{Action: "DetachVolume", resource: "vol-1", Code: "UnauthorizedOperation", Message: "no"}, []string{"allow ec2:DetachVolume on vol-1", ManagedTag}},
		{Error{Action: "CreateVolume", Code: "ExpiredToken", Message: "expired"}, []string{"AWS_ACCESS_KEY_ID", "clock"}},
		{Error{Action: "CreateVolume", Code: "InvalidKmsKey.NotFound", Message: "no key"}, []string{"kms:CreateGrant"}},
		{Error{Action: "CreateVolume", Code: "InvalidParameterValue", Message: "the KMS key is not usable"}, []string{"kms:CreateGrant"}},
		{Error{Action: "X", Code: "Unknown"}, []string{"it failed without a message"}},
	} {
		c.err.sentinel = sentinelOf(c.err.Code, c.err.Message)
		for _, want := range c.says {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("%q does not say %q", c.err.Error(), want)
			}
		}
	}
}
