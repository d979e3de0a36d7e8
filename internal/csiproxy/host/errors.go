package host

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// meanings are the errors of package backend for Windows' numbers, unless an operation
// knows better. A number that is missing from them is a fault without a known cause.
var meanings = map[error][]win32.Errno{
	backend.ErrInvalid: {
		win32.ErrorInvalidName, win32.ErrorBadPathname, win32.ErrorFilenameExcedRange, win32.ErrorInvalidParameter,
		// The answers of a server that cannot encrypt to a mapping that requires it
		// (windows.md has them as 65 and 87).
		win32.ErrorNetworkAccessDenied, win32.ISDSCInvalidParameter, win32.ISDSCInvalidISCSIName,
		win32.ISDSCMissingParameter, win32.ISDSCInvalidCHAPSecret, win32.ISDSCInvalidTargetCHAPSecret,
		win32.ISDSCInvalidInitiatorCHAPSecret, win32.ISDSCInvalidCHAPUserName, win32.ISDSCInvalidLogonAuthType,
		win32.ISDSCNoPortalSpecified, win32.ErrorWBEMInvalidParameter,
	},
	backend.ErrNotFound: {
		win32.ErrorFileNotFound, win32.ErrorPathNotFound, win32.ErrorInvalidDrive, win32.ErrorBadNetPath,
		win32.ErrorBadNetName, win32.ErrorDevNotExist, win32.ErrorNoSuchDevice, win32.ErrorNotFound,
		win32.ErrorNoNetOrBadPath, win32.ErrorServiceDoesNotExist, win32.ErrorNotConnected, win32.ISDSCNotFound,
		win32.ISDSCTargetNotFound, win32.ISDSCTargetRemoved, win32.ISDSCPortalNotFound, win32.ISDSCDeviceNotFound,
		win32.ISDSCInvalidSessionID, win32.ErrorWBEMNotFound,
	},
	backend.ErrExists: {
		win32.ErrorAlreadyExists, win32.ErrorFileExists, win32.ISDSCTargetAlreadyExists,
		win32.ISDSCTargetPortalAlreadyExists, win32.ISDSCSessionAlreadyExists, win32.ISDSCConnectionAlreadyExists,
		win32.ISDSCTargetAlreadyLoggedIn,
	},
	backend.ErrInUse: {
		win32.ErrorSharingViolation, win32.ErrorLockViolation, win32.ErrorBusy, win32.ErrorOpenFiles, win32.ErrorDeviceInUse,
		win32.ErrorCurrentDirectory, win32.ErrorDeletePending, win32.ISDSCDeviceBusyOnSession, win32.ISDSCSessionBusy,
	},
	backend.ErrPrecondition: {
		win32.ErrorWriteProtect, win32.ErrorDirNotEmpty, win32.ErrorUnrecognizedVolume, win32.ErrorUnrecognizedMedia,
		win32.ErrorDirectory, win32.ErrorNotSameDevice, win32.ErrorDirNotRoot, win32.ErrorStoppedOnSymlink,
		win32.ErrorNotAReparsePoint, win32.ErrorReparseAttributeConflict, win32.ErrorReparseTagMismatch,
		win32.ErrorCantAccessFile, win32.ErrorCantResolveFilename, win32.ErrorAlreadyAssigned,
		win32.ErrorSessionCredentialConflict, win32.ErrorNoMediaInDrive, win32.ErrorMediaChanged,
		win32.ErrorDependentServicesRunning, win32.ErrorServiceDisabled, win32.ErrorServiceNotActive,
		win32.ErrorServiceDependencyFail, win32.ErrorServiceLogonFailed, win32.ErrorServiceMarkedForDelete,
		win32.ErrorServiceAlreadyRunning, win32.ErrorServiceCannotAcceptCtrl, win32.ErrorInvalidServiceControl,
		win32.ISDSCRestrictedByGroupPolicy,
	},
	backend.ErrNoSpace: {
		win32.ErrorDiskFull, win32.ISDSCTooManySessions, win32.ISDSCOutOfResources, win32.ISDSCTargetOutOfResources,
	},
	backend.ErrUnsupported: {
		win32.ErrorInvalidFunction, win32.ErrorNotSupported, win32.ErrorCallNotImplemented, win32.ErrorOldWinVersion,
		win32.ErrorModNotFound, win32.ErrorProcNotFound, win32.ISDSCRequestNotSupported, win32.ErrorENotImpl,
		win32.ErrorWBEMInvalidNamespace, win32.ErrorWBEMInvalidClass,
	},
	backend.ErrUnavailable: {
		win32.ErrorTooManyOpenFiles, win32.ErrorNotEnoughMemory, win32.ErrorNoSystemResources, win32.ErrorNotReady,
		win32.ErrorGenFailure, win32.ErrorIODevice, win32.ErrorDeviceNotConnected, win32.ErrorDeviceHardwareError,
		win32.ErrorReadFault, win32.ErrorWriteFault, win32.ErrorSectorNotFound, win32.ErrorCRC, win32.ErrorSemTimeout,
		win32.ErrorWaitTimeout, win32.ErrorTimeout, win32.ErrorOperationAborted, win32.ErrorRemNotList,
		win32.ErrorUnexpNetErr, win32.ErrorNetNameDeleted, win32.ErrorReqNotAccep, win32.ErrorNoNetwork,
		win32.ErrorConnectionRefused, win32.ErrorNetworkUnreachable, win32.ErrorHostUnreachable, win32.ErrorRequestAborted,
		win32.ErrorRPCServerUnavailable, win32.ErrorServiceRequestTimeout, win32.ErrorServiceDatabaseLocked,
		win32.ErrorFileInvalid, win32.ISDSCLoginFailed, win32.ISDSCConnectionFailed, win32.ISDSCServiceUnavailable,
		win32.ISDSCSendFailed, win32.ISDSCTransportError, win32.ISDSCTargetError, win32.ISDSCServiceDidNotRespond,
		win32.ISDSCServiceNotRunning, win32.ISDSCDNSNameUnresolved, win32.ISDSCNoConnectionAvailable,
		win32.ISDSCInitiatorError,
	},
	backend.ErrDenied: {
		win32.ErrorAccessDenied, win32.ErrorPrivilegeNotHeld, win32.ISDSCAuthorizationFailure, win32.ErrorWBEMAccessDenied,
	},
	backend.ErrCredentials: {
		win32.ErrorInvalidPassword, win32.ErrorLogonFailure, win32.ErrorAccountRestriction, win32.ErrorPasswordExpired,
		win32.ErrorAccountDisabled, win32.ErrorPasswordMustChange, win32.ErrorAccountLockedOut,
		win32.ErrorLogonTypeNotGranted, win32.ErrorNoSuchUser, win32.ErrorNotAuthenticated, win32.ErrorNoSuchLogonSession,
		win32.ISDSCAuthenticationFailure, win32.ISDSCLogonFailed, win32.ISDSCLoginUserInfoBad,
	},
	backend.ErrDataLoss: {win32.ErrorFileCorrupt, win32.ErrorDiskCorrupt},
}

// sentinelOf is the inverse of meanings.
var sentinelOf = func() map[win32.Errno]error {
	byNumber := map[win32.Errno]error{}
	for sentinel, numbers := range meanings {
		for _, number := range numbers {
			byNumber[number] = sentinel
		}
	}
	return byNumber
}()

// failed adds to an error of Windows the step at which it occurred, and the error of
// package backend that its number means. An error that wraps one already keeps it.
func failed(err error, step string, args ...any) error {
	if err == nil {
		return nil
	}
	step = fmt.Sprintf(step, args...)
	if number, ok := errors.AsType[win32.Errno](err); ok && !meant(err) {
		if sentinel := sentinelOf[number]; sentinel != nil {
			return fmt.Errorf("%s: %w: %w", step, sentinel, err)
		}
	}
	return fmt.Errorf("%s: %w", step, err)
}

// during adds to an error the operation in which it occurred.
func during(err error, operation string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(operation, args...), err)
}

// failedAs is failed for a step that knows the meaning of the number.
func failedAs(sentinel, err error, step string, args ...any) error {
	return fmt.Errorf("%s: %w: %w", fmt.Sprintf(step, args...), sentinel, err)
}

// meant reports whether an error wraps one of the sentinels already.
func meant(err error) bool {
	for sentinel := range meanings {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// isErrno reports whether an error is one of those numbers of Windows.
func isErrno(err error, numbers ...win32.Errno) bool {
	number, ok := errors.AsType[win32.Errno](err)
	return ok && slices.Contains(numbers, number)
}
