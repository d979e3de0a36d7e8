/* A stand-in for iscsidsc.dll, by the documentation's prototypes: one portal,
 * one target, one session. It checks each argument, so that a call that passes
 * its arguments in another order, size or width is refused. */
#include <windows.h>
#include <winioctl.h>
#include <ntddscsi.h>

#define EXPORT __declspec(dllexport)
#define ANY_PORT 0xFFFFFFFFul
#define INSUFFICIENT 122
#define INVALID 87
#define AUTHENTICATION_FAILURE 0xEFFF0009ul
#define TARGET_ALREADY_LOGGED_IN 0xEFFF003Ful
#define INVALID_SESSION_ID 0xEFFF001Cul
#define OPERATION_NOT_ALL_SUCCESS 0xAFFF002Eul
#define SHORT_CHAP_SECRET 0xAFFF0048ul

typedef struct { ULONGLONG AdapterUnique, AdapterSpecific; } ID;
typedef struct {
	ULONG Version, InformationSpecified, LoginFlags, AuthType, HeaderDigest, DataDigest;
	ULONG MaximumConnections, DefaultTime2Wait, DefaultTime2Retain, UsernameLength, PasswordLength;
	PUCHAR Username, Password;
} OPTIONS;
typedef struct {
	WCHAR SymbolicName[256], Address[256];
	USHORT Socket;
} PORTAL;
typedef struct {
	WCHAR InitiatorName[256];
	ULONG InitiatorPortNumber;
	WCHAR SymbolicName[256], Address[256];
	USHORT Socket;
	ULONGLONG SecurityFlags;
	OPTIONS LoginOptions;
} PORTAL_INFO;
typedef struct {
	ID ConnectionId;
	PWCHAR InitiatorAddress, TargetAddress;
	USHORT InitiatorSocket, TargetSocket;
	UCHAR CID[2];
} CONNECTION;
typedef struct {
	ID SessionId;
	PWCHAR InitiatorName, TargetNodeName, TargetName;
	UCHAR ISID[6], TSID[2];
	ULONG ConnectionCount;
	CONNECTION *Connections;
} SESSION;
typedef struct {
	WCHAR InitiatorName[256], TargetName[224];
	SCSI_ADDRESS ScsiAddress;
	GUID DeviceInterfaceType;
	WCHAR DeviceInterfaceName[MAX_PATH], LegacyName[MAX_PATH];
	STORAGE_DEVICE_NUMBER StorageDeviceNumber;
	ULONG DeviceInstance;
} DEVICE;
typedef struct {
	WCHAR TargetName[224];
	BOOLEAN IsInformationalSession;
	WCHAR InitiatorInstance[256];
	ULONG InitiatorPortNumber;
	PORTAL TargetPortal;
	ULONGLONG SecurityFlags;
	PVOID Mappings;
	OPTIONS LoginOptions;
} LOGIN;

static const WCHAR iqn[] = L"iqn.2026-11.example:target";
static const WCHAR initiator[] = L"ROOT\\ISCSIPRT\\0000_0";
static PORTAL portal;
static BOOL has_portal, refreshed, has_session, has_login;
static const ID session_id = {0x1122334455667788ull, 0x99aabbccddeeff00ull};

static BOOL same(const PORTAL *a, const PORTAL *b) {
	return lstrcmpW(a->Address, b->Address) == 0 && a->Socket == b->Socket;
}

EXPORT ULONG AddIScsiSendTargetPortalW(PWSTR name, ULONG port, OPTIONS *options, ULONGLONG flags, PORTAL *p) {
	if (name || port != ANY_PORT || flags || !options || options->InformationSpecified != 0x80 || options->AuthType) return INVALID;
	portal = *p;
	has_portal = TRUE;
	return 0;
}

EXPORT ULONG RemoveIScsiSendTargetPortalW(PWSTR name, ULONG port, PORTAL *p) {
	if (name || port != ANY_PORT || !has_portal || !same(p, &portal)) return INVALID;
	has_portal = FALSE;
	return 0;
}

EXPORT ULONG RefreshIScsiSendTargetPortalW(PWSTR name, ULONG port, PORTAL *p) {
	if (name || port != ANY_PORT || !has_portal || !same(p, &portal)) return INVALID;
	refreshed = TRUE;
	return 0;
}

EXPORT ULONG ReportIScsiSendTargetPortalsExW(ULONG *count, ULONG *size, PORTAL_INFO *info) {
	if (*size < 100000) return INSUFFICIENT;
	*count = has_portal;
	if (has_portal) {
		ZeroMemory(info, sizeof *info);
		lstrcpyW(info->Address, portal.Address);
		info->Socket = portal.Socket;
	}
	return 0;
}

/* One of two adapters does not answer: a warning, with the other's targets. */
EXPORT ULONG ReportIScsiTargetsW(BOOLEAN update, ULONG *count, PWCHAR buffer) {
	if (update || *count < 50000) return update ? INVALID : INSUFFICIENT;
	ZeroMemory(buffer, 2 * *count);
	if (refreshed) {
		lstrcpyW(buffer, iqn);
		lstrcpyW(buffer + lstrlenW(iqn) + 1, L"iqn.2026-11.example:elsewhere");
	}
	return OPERATION_NOT_ALL_SUCCESS;
}

EXPORT ULONG ReportIScsiTargetPortalsW(PWSTR name, PWSTR target, USHORT *tag, ULONG *count, PORTAL *list) {
	if (name || tag || !*count) return INVALID;
	*count = 1;
	list[0] = portal;
	if (lstrcmpW(target, iqn)) list[0].Socket++;
	return 0;
}

EXPORT ULONG LoginIScsiTargetW(PWSTR target, BOOLEAN informational, PWSTR name, ULONG port, PORTAL *p, ULONGLONG flags, PVOID mappings,
	OPTIONS *options, ULONG key_size, PCHAR key, BOOLEAN persistent, ID *session, ID *connection) {
	if (lstrcmpW(target, iqn) || informational || name || port != ANY_PORT || !same(p, &portal) || flags || mappings || key_size || key) return INVALID;
	if (options->InformationSpecified != 0xE0 || options->AuthType != 1 || options->UsernameLength != 4 || options->PasswordLength != 12 ||
		memcmp(options->Username, "user", 4) || memcmp(options->Password, "0123456789ab", 12)) return AUTHENTICATION_FAILURE;
	if (persistent) {
		has_login = TRUE;
		return TARGET_ALREADY_LOGGED_IN;
	}
	if (has_session) return TARGET_ALREADY_LOGGED_IN;
	has_session = TRUE;
	*session = session_id;
	connection->AdapterUnique = 1;
	return 0;
}

EXPORT ULONG LogoutIScsiTarget(ID *id) {
	if (!has_session || memcmp(id, &session_id, sizeof *id)) return INVALID_SESSION_ID;
	has_session = FALSE;
	return 0;
}

EXPORT ULONG GetIScsiSessionListW(ULONG *size, ULONG *count, SESSION *list) {
	struct { SESSION session; CONNECTION connection; WCHAR name[64], address[64]; } *all = (PVOID)list;
	if (*size < 100000) {
		*size = 100000;
		return INSUFFICIENT;
	}
	*count = has_session;
	if (!has_session) return 0;
	ZeroMemory(all, sizeof *all);
	all->session.SessionId = session_id;
	all->session.TargetName = lstrcpyW(all->name, iqn);
	all->session.ConnectionCount = 1;
	all->session.Connections = &all->connection;
	all->connection.TargetAddress = lstrcpyW(all->address, portal.Address);
	all->connection.TargetSocket = portal.Socket;
	return 0;
}

EXPORT ULONG GetDevicesForIScsiSessionW(ID *id, ULONG *count, DEVICE *list) {
	if (!has_session || memcmp(id, &session_id, sizeof *id)) return INVALID_SESSION_ID;
	if (*count < 100) return INSUFFICIENT;
	ZeroMemory(list, 3 * sizeof *list);
	*count = 3;
	list[0].StorageDeviceNumber = (STORAGE_DEVICE_NUMBER){FILE_DEVICE_DISK, 5, 0};
	list[1].StorageDeviceNumber = (STORAGE_DEVICE_NUMBER){FILE_DEVICE_CD_ROM, 6, 0};
	list[2].StorageDeviceNumber = (STORAGE_DEVICE_NUMBER){FILE_DEVICE_DISK, 7, 0};
	return 0;
}

EXPORT ULONG ReportIScsiPersistentLoginsW(ULONG *count, LOGIN *list, ULONG *size) {
	if (*size < 100000) return INSUFFICIENT;
	*count = has_login;
	if (!has_login) return 0;
	ZeroMemory(list, sizeof *list);
	lstrcpyW(list->TargetName, iqn);
	lstrcpyW(list->InitiatorInstance, initiator);
	list->InitiatorPortNumber = 3;
	list->TargetPortal = portal;
	return 0;
}

EXPORT ULONG RemoveIScsiPersistentTargetW(PWSTR name, ULONG port, PWSTR target, PORTAL *p) {
	if (lstrcmpW(name, initiator) || port != 3 || lstrcmpW(target, iqn) || !same(p, &portal)) return INVALID;
	has_login = FALSE;
	return 0;
}

EXPORT ULONG SetIScsiInitiatorCHAPSharedSecret(ULONG length, PUCHAR secret) {
	if (length == 5) return SHORT_CHAP_SECRET;
	return length == 12 && !memcmp(secret, "secret-12345", 12) ? 0 : INVALID;
}
