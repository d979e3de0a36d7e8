//nolint:errname // Numbers have the names of their headers.
package win32

// The numbers that storage operations give (winerror.h).
const (
	ErrorInvalidFunction           Errno = 1
	ErrorFileNotFound              Errno = 2
	ErrorPathNotFound              Errno = 3
	ErrorTooManyOpenFiles          Errno = 4
	ErrorAccessDenied              Errno = 5
	ErrorInvalidHandle             Errno = 6
	ErrorNotEnoughMemory           Errno = 8
	ErrorInvalidDrive              Errno = 15
	ErrorCurrentDirectory          Errno = 16
	ErrorNotSameDevice             Errno = 17
	ErrorNoMoreFiles               Errno = 18
	ErrorWriteProtect              Errno = 19
	ErrorNotReady                  Errno = 21
	ErrorCRC                       Errno = 23
	ErrorBadLength                 Errno = 24
	ErrorSectorNotFound            Errno = 27
	ErrorWriteFault                Errno = 29
	ErrorReadFault                 Errno = 30
	ErrorGenFailure                Errno = 31
	ErrorSharingViolation          Errno = 32
	ErrorLockViolation             Errno = 33
	ErrorHandleEOF                 Errno = 38
	ErrorNotSupported              Errno = 50
	ErrorRemNotList                Errno = 51
	ErrorBadNetPath                Errno = 53
	ErrorDevNotExist               Errno = 55
	ErrorUnexpNetErr               Errno = 59
	ErrorNetNameDeleted            Errno = 64
	ErrorNetworkAccessDenied       Errno = 65
	ErrorBadNetName                Errno = 67
	ErrorReqNotAccep               Errno = 71
	ErrorFileExists                Errno = 80
	ErrorAlreadyAssigned           Errno = 85
	ErrorInvalidPassword           Errno = 86
	ErrorInvalidParameter          Errno = 87
	ErrorOpenFailed                Errno = 110
	ErrorDiskFull                  Errno = 112
	ErrorCallNotImplemented        Errno = 120
	ErrorSemTimeout                Errno = 121
	ErrorInsufficientBuffer        Errno = 122
	ErrorInvalidName               Errno = 123
	ErrorModNotFound               Errno = 126
	ErrorProcNotFound              Errno = 127
	ErrorDirNotRoot                Errno = 144
	ErrorDirNotEmpty               Errno = 145
	ErrorBadPathname               Errno = 161
	ErrorBusy                      Errno = 170
	ErrorAlreadyExists             Errno = 183
	ErrorFilenameExcedRange        Errno = 206
	ErrorBadPipe                   Errno = 230
	ErrorPipeBusy                  Errno = 231
	ErrorNoData                    Errno = 232
	ErrorPipeNotConnected          Errno = 233
	ErrorMoreData                  Errno = 234
	ErrorWaitTimeout               Errno = 258
	ErrorNoMoreItems               Errno = 259
	ErrorDirectory                 Errno = 267
	ErrorDeletePending             Errno = 303
	ErrorNoSuchDevice              Errno = 433
	ErrorDeviceHardwareError       Errno = 483
	ErrorInvalidAddress            Errno = 487
	ErrorStoppedOnSymlink          Errno = 681
	ErrorOperationAborted          Errno = 995
	ErrorUnrecognizedVolume        Errno = 1005
	ErrorFileInvalid               Errno = 1006
	ErrorDependentServicesRunning  Errno = 1051
	ErrorInvalidServiceControl     Errno = 1052
	ErrorServiceRequestTimeout     Errno = 1053
	ErrorServiceDatabaseLocked     Errno = 1055
	ErrorServiceAlreadyRunning     Errno = 1056
	ErrorServiceDisabled           Errno = 1058
	ErrorServiceDoesNotExist       Errno = 1060
	ErrorServiceCannotAcceptCtrl   Errno = 1061
	ErrorServiceNotActive          Errno = 1062
	ErrorServiceDependencyFail     Errno = 1068
	ErrorServiceLogonFailed        Errno = 1069
	ErrorServiceMarkedForDelete    Errno = 1072
	ErrorServiceExists             Errno = 1073
	ErrorMediaChanged              Errno = 1110
	ErrorNoMediaInDrive            Errno = 1112
	ErrorIODevice                  Errno = 1117
	ErrorOldWinVersion             Errno = 1150
	ErrorDeviceNotConnected        Errno = 1167
	ErrorNotFound                  Errno = 1168
	ErrorNoNetOrBadPath            Errno = 1203
	ErrorSessionCredentialConflict Errno = 1219
	ErrorNoNetwork                 Errno = 1222
	ErrorCancelled                 Errno = 1223
	ErrorConnectionRefused         Errno = 1225
	ErrorNetworkUnreachable        Errno = 1231
	ErrorHostUnreachable           Errno = 1232
	ErrorRequestAborted            Errno = 1235
	ErrorNotAuthenticated          Errno = 1244
	ErrorNoSuchLogonSession        Errno = 1312
	ErrorPrivilegeNotHeld          Errno = 1314
	ErrorNoSuchUser                Errno = 1317
	ErrorLogonFailure              Errno = 1326
	ErrorAccountRestriction        Errno = 1327
	ErrorPasswordExpired           Errno = 1330
	ErrorAccountDisabled           Errno = 1331
	ErrorLogonTypeNotGranted       Errno = 1385
	ErrorFileCorrupt               Errno = 1392
	ErrorDiskCorrupt               Errno = 1393
	ErrorNoSystemResources         Errno = 1450
	ErrorTimeout                   Errno = 1460
	ErrorRPCServerUnavailable      Errno = 1722
	ErrorInvalidUserBuffer         Errno = 1784
	ErrorUnrecognizedMedia         Errno = 1785
	ErrorPasswordMustChange        Errno = 1907
	ErrorAccountLockedOut          Errno = 1909
	ErrorCantAccessFile            Errno = 1920
	ErrorCantResolveFilename       Errno = 1921
	ErrorNotConnected              Errno = 2250
	ErrorOpenFiles                 Errno = 2401
	ErrorDeviceInUse               Errno = 2404
	ErrorNotAReparsePoint          Errno = 4390
	ErrorReparseAttributeConflict  Errno = 4391
	ErrorInvalidReparseData        Errno = 4392
	ErrorReparseTagInvalid         Errno = 4393
	ErrorReparseTagMismatch        Errno = 4394
	ErrorReparsePointEncountered   Errno = 4395
)

// The numbers of the iSCSI initiator (iscsierr.h); those with 0xA are warnings.
const (
	ISDSCNonSpecificError                  Errno = 0xEFFF0001
	ISDSCLoginFailed                       Errno = 0xEFFF0002
	ISDSCConnectionFailed                  Errno = 0xEFFF0003
	ISDSCInitiatorError                    Errno = 0xEFFF0008
	ISDSCAuthenticationFailure             Errno = 0xEFFF0009
	ISDSCAuthorizationFailure              Errno = 0xEFFF000A
	ISDSCNotFound                          Errno = 0xEFFF000B
	ISDSCTargetRemoved                     Errno = 0xEFFF000C
	ISDSCMissingParameter                  Errno = 0xEFFF000F
	ISDSCTargetError                       Errno = 0xEFFF0012
	ISDSCServiceUnavailable                Errno = 0xEFFF0013
	ISDSCOutOfResources                    Errno = 0xEFFF0014
	ISDSCConnectionAlreadyExists           Errno = 0xEFFF0015
	ISDSCSessionAlreadyExists              Errno = 0xEFFF0016
	ISDSCTargetAlreadyExists               Errno = 0xEFFF0018
	ISDSCInvalidSessionID                  Errno = 0xEFFF001C
	ISDSCTooManySessions                   Errno = 0xEFFF001E
	ISDSCSessionBusy                       Errno = 0xEFFF001F
	ISDSCLogonFailed                       Errno = 0xEFFF0022
	ISDSCSendFailed                        Errno = 0xEFFF0023
	ISDSCTransportError                    Errno = 0xEFFF0024
	ISDSCTargetNotFound                    Errno = 0xEFFF0029
	ISDSCLoginUserInfoBad                  Errno = 0xEFFF002A
	ISDSCOperationNotAllSuccess            Errno = 0xAFFF002E
	ISDSCTargetPortalAlreadyExists         Errno = 0xEFFF0032
	ISDSCRequestNotSupported               Errno = 0xEFFF0037
	ISDSCTargetOutOfResources              Errno = 0xEFFF0038
	ISDSCServiceDidNotRespond              Errno = 0xEFFF0039
	ISDSCOperationRequiresReboot           Errno = 0xAFFF003B
	ISDSCNoPortalSpecified                 Errno = 0xEFFF003C
	ISDSCServiceNotRunning                 Errno = 0xEFFF003E
	ISDSCTargetAlreadyLoggedIn             Errno = 0xEFFF003F
	ISDSCDeviceBusyOnSession               Errno = 0xEFFF0040
	ISDSCCouldNotSavePersistentLoginData   Errno = 0xEFFF0041
	ISDSCCouldNotRemovePersistentLoginData Errno = 0xEFFF0042
	ISDSCPortalNotFound                    Errno = 0xEFFF0043
	ISDSCInitiatorNotFound                 Errno = 0xEFFF0044
	ISDSCShortCHAPSecret                   Errno = 0xAFFF0048
	ISDSCInvalidCHAPSecret                 Errno = 0xEFFF004A
	ISDSCInvalidTargetCHAPSecret           Errno = 0xEFFF004B
	ISDSCInvalidInitiatorCHAPSecret        Errno = 0xEFFF004C
	ISDSCInvalidCHAPUserName               Errno = 0xEFFF004D
	ISDSCInvalidLogonAuthType              Errno = 0xEFFF004E
	ISDSCInvalidISCSIName                  Errno = 0xEFFF0051
	ISDSCBufferTooSmall                    Errno = 0xEFFF0054
	ISDSCInvalidParameter                  Errno = 0xEFFF0056
	ISDSCDeviceNotFound                    Errno = 0xEFFF005D
	ISDSCDNSNameUnresolved                 Errno = 0xEFFF005F
	ISDSCNoConnectionAvailable             Errno = 0xEFFF0060
	ISDSCRestrictedByGroupPolicy           Errno = 0xEFFF0065
)

// The numbers of COM and of WMI (winerror.h, wbemcli.h).
const (
	ErrorENotImpl             Errno = 0x80004001
	ErrorEFail                Errno = 0x80004005
	ErrorDispEException       Errno = 0x80020009
	ErrorWBEMFailed           Errno = 0x80041001
	ErrorWBEMNotFound         Errno = 0x80041002
	ErrorWBEMAccessDenied     Errno = 0x80041003
	ErrorWBEMInvalidParameter Errno = 0x80041008
	ErrorWBEMInvalidNamespace Errno = 0x8004100E
	ErrorWBEMInvalidClass     Errno = 0x80041010
)

// errnoNames are the names in the headers.
var errnoNames = map[Errno]string{
	ErrorInvalidFunction:                   "ERROR_INVALID_FUNCTION",
	ErrorFileNotFound:                      "ERROR_FILE_NOT_FOUND",
	ErrorPathNotFound:                      "ERROR_PATH_NOT_FOUND",
	ErrorTooManyOpenFiles:                  "ERROR_TOO_MANY_OPEN_FILES",
	ErrorAccessDenied:                      "ERROR_ACCESS_DENIED",
	ErrorInvalidHandle:                     "ERROR_INVALID_HANDLE",
	ErrorNotEnoughMemory:                   "ERROR_NOT_ENOUGH_MEMORY",
	ErrorInvalidDrive:                      "ERROR_INVALID_DRIVE",
	ErrorCurrentDirectory:                  "ERROR_CURRENT_DIRECTORY",
	ErrorNotSameDevice:                     "ERROR_NOT_SAME_DEVICE",
	ErrorNoMoreFiles:                       "ERROR_NO_MORE_FILES",
	ErrorWriteProtect:                      "ERROR_WRITE_PROTECT",
	ErrorNotReady:                          "ERROR_NOT_READY",
	ErrorCRC:                               "ERROR_CRC",
	ErrorBadLength:                         "ERROR_BAD_LENGTH",
	ErrorSectorNotFound:                    "ERROR_SECTOR_NOT_FOUND",
	ErrorWriteFault:                        "ERROR_WRITE_FAULT",
	ErrorReadFault:                         "ERROR_READ_FAULT",
	ErrorGenFailure:                        "ERROR_GEN_FAILURE",
	ErrorSharingViolation:                  "ERROR_SHARING_VIOLATION",
	ErrorLockViolation:                     "ERROR_LOCK_VIOLATION",
	ErrorHandleEOF:                         "ERROR_HANDLE_EOF",
	ErrorNotSupported:                      "ERROR_NOT_SUPPORTED",
	ErrorRemNotList:                        "ERROR_REM_NOT_LIST",
	ErrorBadNetPath:                        "ERROR_BAD_NETPATH",
	ErrorDevNotExist:                       "ERROR_DEV_NOT_EXIST",
	ErrorUnexpNetErr:                       "ERROR_UNEXP_NET_ERR",
	ErrorNetNameDeleted:                    "ERROR_NETNAME_DELETED",
	ErrorNetworkAccessDenied:               "ERROR_NETWORK_ACCESS_DENIED",
	ErrorBadNetName:                        "ERROR_BAD_NET_NAME",
	ErrorReqNotAccep:                       "ERROR_REQ_NOT_ACCEP",
	ErrorFileExists:                        "ERROR_FILE_EXISTS",
	ErrorAlreadyAssigned:                   "ERROR_ALREADY_ASSIGNED",
	ErrorInvalidPassword:                   "ERROR_INVALID_PASSWORD",
	ErrorInvalidParameter:                  "ERROR_INVALID_PARAMETER",
	ErrorOpenFailed:                        "ERROR_OPEN_FAILED",
	ErrorDiskFull:                          "ERROR_DISK_FULL",
	ErrorCallNotImplemented:                "ERROR_CALL_NOT_IMPLEMENTED",
	ErrorSemTimeout:                        "ERROR_SEM_TIMEOUT",
	ErrorInsufficientBuffer:                "ERROR_INSUFFICIENT_BUFFER",
	ErrorInvalidName:                       "ERROR_INVALID_NAME",
	ErrorModNotFound:                       "ERROR_MOD_NOT_FOUND",
	ErrorProcNotFound:                      "ERROR_PROC_NOT_FOUND",
	ErrorDirNotRoot:                        "ERROR_DIR_NOT_ROOT",
	ErrorDirNotEmpty:                       "ERROR_DIR_NOT_EMPTY",
	ErrorBadPathname:                       "ERROR_BAD_PATHNAME",
	ErrorBusy:                              "ERROR_BUSY",
	ErrorAlreadyExists:                     "ERROR_ALREADY_EXISTS",
	ErrorFilenameExcedRange:                "ERROR_FILENAME_EXCED_RANGE",
	ErrorBadPipe:                           "ERROR_BAD_PIPE",
	ErrorPipeBusy:                          "ERROR_PIPE_BUSY",
	ErrorNoData:                            "ERROR_NO_DATA",
	ErrorPipeNotConnected:                  "ERROR_PIPE_NOT_CONNECTED",
	ErrorMoreData:                          "ERROR_MORE_DATA",
	ErrorWaitTimeout:                       "ERROR_WAIT_TIMEOUT",
	ErrorNoMoreItems:                       "ERROR_NO_MORE_ITEMS",
	ErrorDirectory:                         "ERROR_DIRECTORY",
	ErrorDeletePending:                     "ERROR_DELETE_PENDING",
	ErrorNoSuchDevice:                      "ERROR_NO_SUCH_DEVICE",
	ErrorDeviceHardwareError:               "ERROR_DEVICE_HARDWARE_ERROR",
	ErrorInvalidAddress:                    "ERROR_INVALID_ADDRESS",
	ErrorStoppedOnSymlink:                  "ERROR_STOPPED_ON_SYMLINK",
	ErrorOperationAborted:                  "ERROR_OPERATION_ABORTED",
	ErrorUnrecognizedVolume:                "ERROR_UNRECOGNIZED_VOLUME",
	ErrorFileInvalid:                       "ERROR_FILE_INVALID",
	ErrorDependentServicesRunning:          "ERROR_DEPENDENT_SERVICES_RUNNING",
	ErrorInvalidServiceControl:             "ERROR_INVALID_SERVICE_CONTROL",
	ErrorServiceRequestTimeout:             "ERROR_SERVICE_REQUEST_TIMEOUT",
	ErrorServiceDatabaseLocked:             "ERROR_SERVICE_DATABASE_LOCKED",
	ErrorServiceAlreadyRunning:             "ERROR_SERVICE_ALREADY_RUNNING",
	ErrorServiceDisabled:                   "ERROR_SERVICE_DISABLED",
	ErrorServiceDoesNotExist:               "ERROR_SERVICE_DOES_NOT_EXIST",
	ErrorServiceCannotAcceptCtrl:           "ERROR_SERVICE_CANNOT_ACCEPT_CTRL",
	ErrorServiceNotActive:                  "ERROR_SERVICE_NOT_ACTIVE",
	ErrorServiceDependencyFail:             "ERROR_SERVICE_DEPENDENCY_FAIL",
	ErrorServiceLogonFailed:                "ERROR_SERVICE_LOGON_FAILED",
	ErrorServiceMarkedForDelete:            "ERROR_SERVICE_MARKED_FOR_DELETE",
	ErrorServiceExists:                     "ERROR_SERVICE_EXISTS",
	ErrorMediaChanged:                      "ERROR_MEDIA_CHANGED",
	ErrorNoMediaInDrive:                    "ERROR_NO_MEDIA_IN_DRIVE",
	ErrorIODevice:                          "ERROR_IO_DEVICE",
	ErrorOldWinVersion:                     "ERROR_OLD_WIN_VERSION",
	ErrorDeviceNotConnected:                "ERROR_DEVICE_NOT_CONNECTED",
	ErrorNotFound:                          "ERROR_NOT_FOUND",
	ErrorNoNetOrBadPath:                    "ERROR_NO_NET_OR_BAD_PATH",
	ErrorSessionCredentialConflict:         "ERROR_SESSION_CREDENTIAL_CONFLICT",
	ErrorNoNetwork:                         "ERROR_NO_NETWORK",
	ErrorCancelled:                         "ERROR_CANCELLED",
	ErrorConnectionRefused:                 "ERROR_CONNECTION_REFUSED",
	ErrorNetworkUnreachable:                "ERROR_NETWORK_UNREACHABLE",
	ErrorHostUnreachable:                   "ERROR_HOST_UNREACHABLE",
	ErrorRequestAborted:                    "ERROR_REQUEST_ABORTED",
	ErrorNotAuthenticated:                  "ERROR_NOT_AUTHENTICATED",
	ErrorNoSuchLogonSession:                "ERROR_NO_SUCH_LOGON_SESSION",
	ErrorPrivilegeNotHeld:                  "ERROR_PRIVILEGE_NOT_HELD",
	ErrorNoSuchUser:                        "ERROR_NO_SUCH_USER",
	ErrorLogonFailure:                      "ERROR_LOGON_FAILURE",
	ErrorAccountRestriction:                "ERROR_ACCOUNT_RESTRICTION",
	ErrorPasswordExpired:                   "ERROR_PASSWORD_EXPIRED",
	ErrorAccountDisabled:                   "ERROR_ACCOUNT_DISABLED",
	ErrorLogonTypeNotGranted:               "ERROR_LOGON_TYPE_NOT_GRANTED",
	ErrorFileCorrupt:                       "ERROR_FILE_CORRUPT",
	ErrorDiskCorrupt:                       "ERROR_DISK_CORRUPT",
	ErrorNoSystemResources:                 "ERROR_NO_SYSTEM_RESOURCES",
	ErrorTimeout:                           "ERROR_TIMEOUT",
	ErrorRPCServerUnavailable:              "RPC_S_SERVER_UNAVAILABLE",
	ErrorInvalidUserBuffer:                 "ERROR_INVALID_USER_BUFFER",
	ErrorUnrecognizedMedia:                 "ERROR_UNRECOGNIZED_MEDIA",
	ErrorPasswordMustChange:                "ERROR_PASSWORD_MUST_CHANGE",
	ErrorAccountLockedOut:                  "ERROR_ACCOUNT_LOCKED_OUT",
	ErrorCantAccessFile:                    "ERROR_CANT_ACCESS_FILE",
	ErrorCantResolveFilename:               "ERROR_CANT_RESOLVE_FILENAME",
	ErrorNotConnected:                      "ERROR_NOT_CONNECTED",
	ErrorOpenFiles:                         "ERROR_OPEN_FILES",
	ErrorDeviceInUse:                       "ERROR_DEVICE_IN_USE",
	ErrorNotAReparsePoint:                  "ERROR_NOT_A_REPARSE_POINT",
	ErrorReparseAttributeConflict:          "ERROR_REPARSE_ATTRIBUTE_CONFLICT",
	ErrorInvalidReparseData:                "ERROR_INVALID_REPARSE_DATA",
	ErrorReparseTagInvalid:                 "ERROR_REPARSE_TAG_INVALID",
	ErrorReparseTagMismatch:                "ERROR_REPARSE_TAG_MISMATCH",
	ErrorReparsePointEncountered:           "ERROR_REPARSE_POINT_ENCOUNTERED",
	ISDSCNonSpecificError:                  "ISDSC_NON_SPECIFIC_ERROR",
	ISDSCLoginFailed:                       "ISDSC_LOGIN_FAILED",
	ISDSCConnectionFailed:                  "ISDSC_CONNECTION_FAILED",
	ISDSCInitiatorError:                    "ISDSC_INITIATOR_ERROR",
	ISDSCAuthenticationFailure:             "ISDSC_AUTHENTICATION_FAILURE",
	ISDSCAuthorizationFailure:              "ISDSC_AUTHORIZATION_FAILURE",
	ISDSCNotFound:                          "ISDSC_NOT_FOUND",
	ISDSCTargetRemoved:                     "ISDSC_TARGET_REMOVED",
	ISDSCMissingParameter:                  "ISDSC_MISSING_PARAMETER",
	ISDSCTargetError:                       "ISDSC_TARGET_ERROR",
	ISDSCServiceUnavailable:                "ISDSC_SERVICE_UNAVAILABLE",
	ISDSCOutOfResources:                    "ISDSC_OUT_OF_RESOURCES",
	ISDSCConnectionAlreadyExists:           "ISDSC_CONNECTION_ALREADY_EXISTS",
	ISDSCSessionAlreadyExists:              "ISDSC_SESSION_ALREADY_EXISTS",
	ISDSCTargetAlreadyExists:               "ISDSC_TARGET_ALREADY_EXISTS",
	ISDSCInvalidSessionID:                  "ISDSC_INVALID_SESSION_ID",
	ISDSCTooManySessions:                   "ISDSC_TOO_MANY_SESSIONS",
	ISDSCSessionBusy:                       "ISDSC_SESSION_BUSY",
	ISDSCLogonFailed:                       "ISDSC_LOGON_FAILED",
	ISDSCSendFailed:                        "ISDSC_SEND_FAILED",
	ISDSCTransportError:                    "ISDSC_TRANSPORT_ERROR",
	ISDSCTargetNotFound:                    "ISDSC_TARGET_NOT_FOUND",
	ISDSCLoginUserInfoBad:                  "ISDSC_LOGIN_USER_INFO_BAD",
	ISDSCOperationNotAllSuccess:            "ISDSC_OPERATION_NOT_ALL_SUCCESS",
	ISDSCTargetPortalAlreadyExists:         "ISDSC_TARGET_PORTAL_ALREADY_EXISTS",
	ISDSCRequestNotSupported:               "ISDSC_REQUEST_NOT_SUPPORTED",
	ISDSCTargetOutOfResources:              "ISDSC_TARGET_OUT_OF_RESORCES",
	ISDSCServiceDidNotRespond:              "ISDSC_SERVICE_DID_NOT_RESPOND",
	ISDSCOperationRequiresReboot:           "ISDSC_OPERATION_REQUIRES_REBOOT",
	ISDSCNoPortalSpecified:                 "ISDSC_NO_PORTAL_SPECIFIED",
	ISDSCServiceNotRunning:                 "ISDSC_SERVICE_NOT_RUNNING",
	ISDSCTargetAlreadyLoggedIn:             "ISDSC_TARGET_ALREADY_LOGGED_IN",
	ISDSCDeviceBusyOnSession:               "ISDSC_DEVICE_BUSY_ON_SESSION",
	ISDSCCouldNotSavePersistentLoginData:   "ISDSC_COULD_NOT_SAVE_PERSISTENT_LOGIN_DATA",
	ISDSCCouldNotRemovePersistentLoginData: "ISDSC_COULD_NOT_REMOVE_PERSISTENT_LOGIN_DATA",
	ISDSCPortalNotFound:                    "ISDSC_PORTAL_NOT_FOUND",
	ISDSCInitiatorNotFound:                 "ISDSC_INITIATOR_NOT_FOUND",
	ISDSCShortCHAPSecret:                   "ISDSC_SHORT_CHAP_SECRET",
	ISDSCInvalidCHAPSecret:                 "ISDSC_INVALID_CHAP_SECRET",
	ISDSCInvalidTargetCHAPSecret:           "ISDSC_INVALID_TARGET_CHAP_SECRET",
	ISDSCInvalidInitiatorCHAPSecret:        "ISDSC_INVALID_INITIATOR_CHAP_SECRET",
	ISDSCInvalidCHAPUserName:               "ISDSC_INVALID_CHAP_USER_NAME",
	ISDSCInvalidLogonAuthType:              "ISDSC_INVALID_LOGON_AUTH_TYPE",
	ISDSCInvalidISCSIName:                  "ISDSC_INVALID_ISCSI_NAME",
	ISDSCBufferTooSmall:                    "ISDSC_BUFFER_TOO_SMALL",
	ISDSCInvalidParameter:                  "ISDSC_INVALID_PARAMETER",
	ISDSCDeviceNotFound:                    "ISDSC_DEVICE_NOT_FOUND",
	ISDSCDNSNameUnresolved:                 "ISDSC_DNS_NAME_UNRESOLVED",
	ISDSCNoConnectionAvailable:             "ISDSC_NO_CONNECTION_AVAILABLE",
	ISDSCRestrictedByGroupPolicy:           "ISDSC_RESTRICTED_BY_GROUP_POLICY",
	ErrorENotImpl:                          "E_NOTIMPL",
	ErrorEFail:                             "E_FAIL",
	ErrorDispEException:                    "DISP_E_EXCEPTION",
	ErrorWBEMFailed:                        "WBEM_E_FAILED",
	ErrorWBEMNotFound:                      "WBEM_E_NOT_FOUND",
	ErrorWBEMAccessDenied:                  "WBEM_E_ACCESS_DENIED",
	ErrorWBEMInvalidParameter:              "WBEM_E_INVALID_PARAMETER",
	ErrorWBEMInvalidNamespace:              "WBEM_E_INVALID_NAMESPACE",
	ErrorWBEMInvalidClass:                  "WBEM_E_INVALID_CLASS",
}
