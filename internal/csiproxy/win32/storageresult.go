//nolint:errname // Results have the names of the API's page.
package win32

import "fmt"

// StorageResult is a result of the methods of WMI's namespace
// Root\Microsoft\Windows\Storage ("Storage Management API Common Return Codes"). Its
// numbers are not those of Windows: 5 is an invalid parameter, not a denied access.
type StorageResult uint32

// The results of formatting a volume.
const (
	StorageNotSupported           StorageResult = 1
	StorageUnspecified            StorageResult = 2
	StorageTimeout                StorageResult = 3
	StorageFailed                 StorageResult = 4
	StorageInvalidParameter       StorageResult = 5
	StorageInUse                  StorageResult = 6
	StorageNotOnX86               StorageResult = 7
	StorageObjectNotFound         StorageResult = 8
	StorageJobStarted             StorageResult = 4096
	StorageSizeNotSupported       StorageResult = 4097
	StorageTimeoutNotSupported    StorageResult = 4098
	StorageDeviceBusy             StorageResult = 4099
	StorageNoCapacity             StorageResult = 40000
	StorageAccessDenied           StorageResult = 40001
	StorageNoResources            StorageResult = 40002
	StorageCacheOutOfDate         StorageResult = 40003
	StorageIOError                StorageResult = 40004
	StorageSizeNeeded             StorageResult = 40005
	StorageNotInCache             StorageResult = 40006
	StorageHardwareError          StorageResult = 40007
	StorageDiskNotInitialised     StorageResult = 41000
	StorageDiskReadOnly           StorageResult = 41002
	StorageDiskOffline            StorageResult = 41003
	StorageClusterSizeInvalid     StorageResult = 43000
	StorageFileSystemNotSupported StorageResult = 43001
	StorageNoQuickFormat          StorageResult = 43002
	StorageTooManyClusters        StorageResult = 43003
	StorageClusterNotOfSectors    StorageResult = 43005
	StorageDriveReadOnly          StorageResult = 43006
	StorageCannotOpenDrive        StorageResult = 43013
	StorageFileSystemUnknown      StorageResult = 43014
)

// storageResults are the API's texts for a result, and the number of Windows with the
// same meaning.
var storageResults = map[StorageResult]struct {
	text  string
	errno Errno
}{
	StorageNotSupported:           {"not supported", ErrorNotSupported},
	StorageUnspecified:            {"unspecified error", ErrorGenFailure},
	StorageTimeout:                {"timeout", ErrorTimeout},
	StorageFailed:                 {"failed", ErrorGenFailure},
	StorageInvalidParameter:       {"invalid parameter", ErrorInvalidParameter},
	StorageInUse:                  {"in use", ErrorBusy},
	StorageNotOnX86:               {"not supported on x86", ErrorNotSupported},
	StorageObjectNotFound:         {"object not found", ErrorNotFound},
	StorageJobStarted:             {"job started", ErrorNotReady},
	StorageSizeNotSupported:       {"size not supported", ErrorInvalidParameter},
	StorageTimeoutNotSupported:    {"timeout not supported", ErrorNotSupported},
	StorageDeviceBusy:             {"the device is busy", ErrorBusy},
	StorageNoCapacity:             {"not enough available capacity", ErrorDiskFull},
	StorageAccessDenied:           {"access denied", ErrorAccessDenied},
	StorageNoResources:            {"not enough resources", ErrorNoSystemResources},
	StorageCacheOutOfDate:         {"cache out of date", ErrorNotReady},
	StorageIOError:                {"unexpected I/O error", ErrorIODevice},
	StorageSizeNeeded:             {"a size must be specified", ErrorInvalidParameter},
	StorageNotInCache:             {"the object does not exist in the cache", ErrorNotFound},
	StorageHardwareError:          {"device hardware error", ErrorDeviceHardwareError},
	StorageDiskNotInitialised:     {"the disk has not been initialized", ErrorUnrecognizedMedia},
	StorageDiskReadOnly:           {"the disk is read only", ErrorWriteProtect},
	StorageDiskOffline:            {"the disk is offline", ErrorNotReady},
	StorageClusterSizeInvalid:     {"the cluster size is invalid", ErrorInvalidParameter},
	StorageFileSystemNotSupported: {"the file system is not supported", ErrorNotSupported},
	StorageNoQuickFormat:          {"the volume cannot be quick formatted", ErrorNotSupported},
	StorageTooManyClusters:        {"the number of clusters exceeds 32 bits", ErrorInvalidParameter},
	StorageClusterNotOfSectors:    {"the cluster size must be a multiple of the sector size", ErrorInvalidParameter},
	StorageDriveReadOnly:          {"the drive is read only", ErrorWriteProtect},
	StorageCannotOpenDrive:        {"the drive cannot be opened for direct access", ErrorSharingViolation},
	StorageFileSystemUnknown:      {"the file system cannot be determined", ErrorUnrecognizedVolume},
}

// Error names the result.
func (r StorageResult) Error() string {
	known, ok := storageResults[r]
	if !ok {
		return fmt.Sprintf("storage result %d", uint32(r))
	}
	return fmt.Sprintf("storage result %d, %s: %v", uint32(r), known.text, known.errno)
}

// Unwrap is the number of Windows that means the same; ERROR_GEN_FAILURE for a
// result without one.
func (r StorageResult) Unwrap() error {
	if known, ok := storageResults[r]; ok {
		return known.errno
	}
	return ErrorGenFailure
}
