package win32

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// The structures of iscsidsc.dll, as 64-bit Windows lays them out. Those that
// Windows writes contain pointers into the same buffer: the decoders get the address
// of the buffer and follow no pointer outside it.

// Lengths of texts in the structures, in UTF-16 units (iscsidsc.h).
const (
	iscsiName    = 224 // MAX_ISCSI_NAME_LEN + 1
	iscsiHBA     = 256 // MAX_ISCSI_HBANAME_LEN
	iscsiAddress = 256 // MAX_ISCSI_PORTAL_ADDRESS_LEN, and of the symbolic name
	iscsiPath    = 260 // MAX_PATH
)

// DefaultISCSIPort is the registered port of iSCSI targets.
const DefaultISCSIPort = 3260

// ISCSIPortalSize is the size of ISCSI_TARGET_PORTALW.
const ISCSIPortalSize = 4*iscsiAddress + 2

// EncodeISCSIPortal returns the bytes of ISCSI_TARGET_PORTALW. Port 0 becomes 3260.
func EncodeISCSIPortal(portal api.Portal) ([]byte, error) {
	port := portal.Port
	if port == 0 {
		port = DefaultISCSIPort
	}
	if port > 0xFFFF {
		return nil, fmt.Errorf("%w: port %d of portal %s", ErrorInvalidParameter, port, portal.Address)
	}
	address := widen(portal.Address)
	if len(address) == 0 || len(address) > 2*(iscsiAddress-1) {
		return nil, fmt.Errorf("%w: the portal's address has %d characters", ErrorInvalidParameter, len(address)/2)
	}
	data := make([]byte, ISCSIPortalSize)
	copy(data[2*iscsiAddress:], address)
	le.PutUint16(data[4*iscsiAddress:], uint16(port))
	return data, nil
}

func portalAt(data []byte) api.Portal {
	return api.Portal{
		Address: wideZ(data[2*iscsiAddress : 4*iscsiAddress]),
		Port:    uint32(le.Uint16(data[4*iscsiAddress:])),
	}
}

// DecodeISCSIPortals reads an array of ISCSI_TARGET_PORTALW.
func DecodeISCSIPortals(data []byte, count uint32) ([]api.Portal, error) {
	return array("ISCSI_TARGET_PORTALW", data, count, ISCSIPortalSize, portalAt)
}

// array reads count structures of a size that lie one behind the other.
func array[T any](name string, data []byte, count uint32, size int, at func([]byte) T) ([]T, error) {
	if uint64(count)*uint64(size) > uint64(len(data)) {
		return nil, malformed(name, "%d of %d bytes each in %d", count, size, len(data))
	}
	var list []T
	for i := range int(count) {
		list = append(list, at(data[i*size:(i+1)*size]))
	}
	return list, nil
}

// ISCSIPortalInfoSize is the size of ISCSI_TARGET_PORTAL_INFO_EXW.
const ISCSIPortalInfoSize = 1616

const portalInfoPortal = 2*iscsiHBA + 4 // behind InitiatorName and InitiatorPortNumber

// DecodeISCSIPortalInfos reads an array of ISCSI_TARGET_PORTAL_INFO_EXW.
func DecodeISCSIPortalInfos(data []byte, count uint32) ([]api.Portal, error) {
	return array("ISCSI_TARGET_PORTAL_INFO_EXW", data, count, ISCSIPortalInfoSize, func(data []byte) api.Portal {
		return portalAt(data[portalInfoPortal:])
	})
}

// ISCSILoginOptions is ISCSI_LOGIN_OPTIONS with CHAP.
type ISCSILoginOptions struct {
	Auth     api.AuthType
	Username string
	Secret   api.Secret
}

const (
	loginOptionsSize = 64

	loginOptionUsername = 0x20
	loginOptionPassword = 0x40
	loginOptionAuthType = 0x80
)

// Size is the number of bytes that Put fills.
func (o ISCSILoginOptions) Size() int {
	return loginOptionsSize + len(o.Username) + len(o.Secret.Reveal())
}

// Put writes the structure into data, which lies at address base, with the texts
// behind it.
func (o ISCSILoginOptions) Put(data []byte, base uint64) {
	clear(data[:loginOptionsSize])
	specified := uint32(loginOptionAuthType)
	le.PutUint32(data[12:], uint32(o.Auth))
	next := uint64(loginOptionsSize)
	for _, text := range []struct {
		flag         uint32
		length, addr int
		value        string
	}{{loginOptionUsername, 36, 48, o.Username}, {loginOptionPassword, 40, 56, o.Secret.Reveal()}} {
		if text.value == "" {
			continue
		}
		specified |= text.flag
		le.PutUint32(data[text.length:], uint32(len(text.value)))
		le.PutUint64(data[text.addr:], base+next)
		next += uint64(copy(data[next:], text.value))
	}
	le.PutUint32(data[4:], specified)
}

const (
	sessionSize    = 64
	connectionSize = 40
	iscsiText      = 2 << 10 // more bytes than any name or address has
)

// memory is a buffer that lies at an address.
type memory struct {
	data []byte
	base uint64
}

// at returns size bytes at an address.
func (m memory) at(address uint64, size uint64) ([]byte, bool) {
	offset := address - m.base // wraps for an address before the base
	if address < m.base || offset > uint64(len(m.data)) || size > uint64(len(m.data))-offset {
		return nil, false
	}
	return m.data[offset : offset+size], true
}

// text reads a NUL-terminated UTF-16 text at an address; a null pointer is "".
func (m memory) text(address uint64) (string, bool) {
	if address == 0 {
		return "", true
	}
	if _, ok := m.at(address, 0); !ok {
		return "", false
	}
	rest := m.data[address-m.base:]
	return wideZ(rest[:min(len(rest), iscsiText)]), true
}

// DecodeISCSISessions reads the array of ISCSI_SESSION_INFOW that GetIScsiSessionListW
// wrote into a buffer at address base.
func DecodeISCSISessions(data []byte, base uint64, count uint32) ([]Session, error) {
	const name = "ISCSI_SESSION_INFOW"
	if uint64(count)*sessionSize > uint64(len(data)) {
		return nil, malformed(name, "%d of them in %d bytes", count, len(data))
	}
	buffer := memory{data, base}
	room := uint64(len(data)) / connectionSize // each connection has its own bytes
	var list []Session
	for i := range int(count) {
		at := data[i*sessionSize:]
		session := Session{ID: SessionID{AdapterUnique: le.Uint64(at), AdapterSpecific: le.Uint64(at[8:])}}
		var ok bool
		if session.IQN, ok = buffer.text(le.Uint64(at[32:])); !ok {
			return nil, malformed(name, "the target's name lies outside")
		}
		if session.IQN == "" {
			if session.IQN, ok = buffer.text(le.Uint64(at[24:])); !ok {
				return nil, malformed(name, "the target node's name lies outside")
			}
		}
		connections := le.Uint32(at[48:])
		if uint64(connections) > room {
			return nil, malformed(name, "more connections than there is room for")
		}
		room -= uint64(connections)
		var err error
		if session.Portals, err = buffer.connections(le.Uint64(at[56:]), connections); err != nil {
			return nil, err
		}
		list = append(list, session)
	}
	return list, nil
}

// connections reads an array of ISCSI_CONNECTION_INFOW.
func (m memory) connections(address uint64, count uint32) ([]api.Portal, error) {
	const name = "ISCSI_CONNECTION_INFOW"
	if count == 0 {
		return nil, nil
	}
	data, ok := m.at(address, uint64(count)*connectionSize)
	if !ok {
		return nil, malformed(name, "%d of them lie outside", count)
	}
	var list []api.Portal
	for i := range int(count) {
		at := data[i*connectionSize:]
		target, ok := m.text(le.Uint64(at[24:]))
		if !ok {
			return nil, malformed(name, "the target's address lies outside")
		}
		list = append(list, api.Portal{Address: target, Port: uint32(le.Uint16(at[34:]))})
	}
	return list, nil
}

// ISCSIDeviceSize is the size of ISCSI_DEVICE_ON_SESSIONW.
const ISCSIDeviceSize = 2040

const deviceOnSessionNumber = 2*iscsiHBA + 2*iscsiName + scsiAddressSize + 16 + 4*iscsiPath

// DecodeISCSIDevices reads an array of ISCSI_DEVICE_ON_SESSIONW: the number of
// each device.
func DecodeISCSIDevices(data []byte, count uint32) ([]DeviceNumber, error) {
	return array("ISCSI_DEVICE_ON_SESSIONW", data, count, ISCSIDeviceSize, func(data []byte) DeviceNumber {
		at := data[deviceOnSessionNumber:]
		return DeviceNumber{Type: le.Uint32(at), Number: le.Uint32(at[4:]), Partition: le.Uint32(at[8:])}
	})
}

// ISCSIPersistentLogin is PERSISTENT_ISCSI_LOGIN_INFOW: a persistent login with its
// initiator, both of which are needed to remove it.
type ISCSIPersistentLogin struct {
	PersistentLogin
	Initiator string
	Port      uint32
}

const (
	persistentLoginSize      = 2080
	persistentLoginInitiator = 2*iscsiName + 2 // behind IsInformationalSession
	persistentLoginPort      = 964
	persistentLoginPortal    = 968
)

// DecodeISCSIPersistentLogins reads an array of PERSISTENT_ISCSI_LOGIN_INFOW.
func DecodeISCSIPersistentLogins(data []byte, count uint32) ([]ISCSIPersistentLogin, error) {
	return array("PERSISTENT_ISCSI_LOGIN_INFOW", data, count, persistentLoginSize, func(data []byte) ISCSIPersistentLogin {
		return ISCSIPersistentLogin{
			PersistentLogin: PersistentLogin{IQN: wideZ(data[:2*iscsiName]), Portal: portalAt(data[persistentLoginPortal:])},
			Initiator:       wideZ(data[persistentLoginInitiator : persistentLoginInitiator+2*iscsiHBA]),
			Port:            le.Uint32(data[persistentLoginPort:]),
		}
	})
}
