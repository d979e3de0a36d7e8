package native

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Login implements win32.ISCSI.
func (i iscsi) Login(ctx context.Context, login api.ISCSILogin) (win32.SessionID, error) {
	return await(ctx, i.gate, func() (win32.SessionID, error) { return i.loginTarget(login, false) })
}

// Persist implements win32.ISCSI. LoginIScsiTargetW either opens a session or stores a
// login for later starts (its page, "Remarks").
func (i iscsi) Persist(ctx context.Context, login api.ISCSILogin) error {
	return awaitError(ctx, i.gate, func() error {
		_, err := i.loginTarget(login, true)
		if errors.Is(err, win32.ISDSCTargetAlreadyLoggedIn) || errors.Is(err, win32.ISDSCSessionAlreadyExists) {
			return nil // the login is stored; a session is not needed
		}
		return err
	})
}

func (i iscsi) loginTarget(login api.ISCSILogin, persistent bool) (win32.SessionID, error) {
	const name = "LoginIScsiTargetW"
	var id, connection [2]uint64
	proc, err := i.procedure(name)
	if err != nil {
		return win32.SessionID{}, err
	}
	target, err := utf16(login.IQN)
	if err != nil {
		return win32.SessionID{}, err
	}
	portal, err := win32.EncodeISCSIPortal(login.Portal)
	if err != nil {
		return win32.SessionID{}, err
	}
	options := newLoginOptions(win32.ISCSILoginOptions{Auth: login.Auth, Username: login.Username, Secret: login.Secret})
	defer clear(options)
	var keep uintptr
	if persistent {
		keep = 1
	}
	result, _, _ := proc.Call(
		uintptr(unsafe.Pointer(target)),
		0,          // not for information only
		0, anyPort, // of any initiator
		uintptr(unsafe.Pointer(&portal[0])),
		0, // security flags: those of the registry
		0, // no mapping of LUNs
		uintptr(unsafe.Pointer(&options[0])),
		0, 0, // no key of IPsec
		keep,
		uintptr(unsafe.Pointer(&id)), uintptr(unsafe.Pointer(&connection)))
	runtime.KeepAlive(options)
	if err := answered(name, result); err != nil {
		return win32.SessionID{}, err
	}
	return win32.SessionID{AdapterUnique: id[0], AdapterSpecific: id[1]}, nil
}

// Logout implements win32.ISCSI.
func (i iscsi) Logout(ctx context.Context, session win32.SessionID) error {
	return awaitError(ctx, i.gate, func() error {
		const name = "LogoutIScsiTarget"
		proc, err := i.procedure(name)
		if err != nil {
			return err
		}
		id := [2]uint64{session.AdapterUnique, session.AdapterSpecific}
		result, _, _ := proc.Call(uintptr(unsafe.Pointer(&id)))
		return answered(name, result)
	})
}

// Sessions implements win32.ISCSI.
func (i iscsi) Sessions(ctx context.Context) ([]win32.Session, error) {
	return await(ctx, i.gate, func() (sessions []win32.Session, err error) {
		const name = "GetIScsiSessionListW"
		proc, err := i.procedure(name)
		if err != nil {
			return nil, err
		}
		var decoded error
		err = enlarged(name, func(buffer []byte) uintptr {
			var count uint32
			size := uint32(len(buffer))
			result, _, _ := proc.Call(uintptr(unsafe.Pointer(&size)), uintptr(unsafe.Pointer(&count)),
				uintptr(unsafe.Pointer(&buffer[0])))
			if hasSucceeded(result) {
				sessions, decoded = win32.DecodeISCSISessions(buffer, uint64(uintptr(unsafe.Pointer(&buffer[0]))), count)
			}
			return result
		})
		return sessions, errors.Join(err, decoded)
	})
}

// Devices implements win32.ISCSI.
func (i iscsi) Devices(ctx context.Context, session win32.SessionID) ([]uint32, error) {
	return await(ctx, i.gate, func() (numbers []uint32, err error) {
		const name = "GetDevicesForIScsiSessionW"
		proc, err := i.procedure(name)
		if err != nil {
			return nil, err
		}
		id := [2]uint64{session.AdapterUnique, session.AdapterSpecific}
		var devices []win32.DeviceNumber
		var decoded error
		err = enlarged(name, func(buffer []byte) uintptr {
			count := uint32(len(buffer) / win32.ISCSIDeviceSize)
			result, _, _ := proc.Call(uintptr(unsafe.Pointer(&id)), uintptr(unsafe.Pointer(&count)),
				uintptr(unsafe.Pointer(&buffer[0])))
			if hasSucceeded(result) {
				devices, decoded = win32.DecodeISCSIDevices(buffer, count)
			}
			return result
		})
		for _, device := range devices {
			if device.Type == win32.DeviceTypeDisk {
				numbers = append(numbers, device.Number)
			}
		}
		return numbers, errors.Join(err, decoded)
	})
}

// PersistentLogins implements win32.ISCSI.
func (i iscsi) PersistentLogins(ctx context.Context) ([]win32.PersistentLogin, error) {
	return await(ctx, i.gate, func() ([]win32.PersistentLogin, error) {
		kept, err := i.reportPersistentLogins()
		var logins []win32.PersistentLogin
		for _, login := range kept {
			logins = append(logins, login.PersistentLogin)
		}
		return logins, err
	})
}

func (i iscsi) reportPersistentLogins() (logins []win32.ISCSIPersistentLogin, err error) {
	const name = "ReportIScsiPersistentLoginsW"
	proc, err := i.procedure(name)
	if err != nil {
		return nil, err
	}
	var decoded error
	err = enlarged(name, func(buffer []byte) uintptr {
		defer clear(buffer) // secrets may be in it
		var count uint32
		size := uint32(len(buffer))
		result, _, _ := proc.Call(uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&buffer[0])),
			uintptr(unsafe.Pointer(&size)))
		if hasSucceeded(result) {
			logins, decoded = win32.DecodeISCSIPersistentLogins(buffer, count)
		}
		return result
	})
	return logins, errors.Join(err, decoded)
}

// RemovePersistentLogin implements win32.ISCSI. The initiator is part of a login's name,
// so it is looked up.
func (i iscsi) RemovePersistentLogin(ctx context.Context, login win32.PersistentLogin) error {
	return awaitError(ctx, i.gate, func() error {
		kept, err := i.reportPersistentLogins()
		if err != nil {
			return err
		}
		found := false
		for _, candidate := range kept {
			if !strings.EqualFold(candidate.IQN, login.IQN) || candidate.Portal != login.Portal {
				continue
			}
			found = true
			if err := i.removePersistentLogin(candidate); err != nil {
				return err
			}
		}
		if !found {
			return fmt.Errorf("no persistent login of %s: %w", login.IQN, win32.ErrorNotFound)
		}
		return nil
	})
}

func (i iscsi) removePersistentLogin(login win32.ISCSIPersistentLogin) error {
	const name = "RemoveIScsiPersistentTargetW"
	proc, err := i.procedure(name)
	if err != nil {
		return err
	}
	initiator, err := utf16(login.Initiator)
	if err != nil {
		return err
	}
	target, err := utf16(login.IQN)
	if err != nil {
		return err
	}
	portal, err := win32.EncodeISCSIPortal(login.Portal)
	if err != nil {
		return err
	}
	result, _, _ := proc.Call(uintptr(unsafe.Pointer(initiator)), uintptr(login.Port),
		uintptr(unsafe.Pointer(target)), uintptr(unsafe.Pointer(&portal[0])))
	return answered(name, result)
}

// SetSharedSecret implements win32.ISCSI.
func (i iscsi) SetSharedSecret(ctx context.Context, secret api.Secret) error {
	return awaitError(ctx, i.gate, func() error {
		const name = "SetIScsiInitiatorCHAPSharedSecret"
		proc, err := i.procedure(name)
		if err != nil {
			return err
		}
		data := []byte(secret.Reveal())
		if len(data) == 0 {
			return failed(name, win32.ISDSCInvalidCHAPSecret)
		}
		defer clear(data)
		result, _, _ := proc.Call(uintptr(len(data)), uintptr(unsafe.Pointer(&data[0])))
		return answered(name, result)
	})
}
