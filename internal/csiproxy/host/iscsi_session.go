package host

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// target is a target at one of its portals, as callers name it.
type target struct {
	portal api.Portal
	iqn    string
}

func (t target) String() string {
	return fmt.Sprintf("target %s at %s port %d", t.iqn, t.portal.Address, t.portal.Port)
}

// isAt reports whether a portal that Windows lists is the one that a caller named.
// Windows lists addresses even if it was given a host name. For a name, isAt compares
// only the port; the target's name, which is globally unique, is compared elsewhere.
func (t target) isAt(p api.Portal) bool {
	if _, err := netip.ParseAddr(t.portal.Address); err != nil {
		return p.Port == t.portal.Port
	}
	return samePortal(p, t.portal)
}

func checkTarget(portal api.Portal, iqn string) (target, error) {
	portal, err := checkPortal(portal)
	if err == nil {
		err = checkIQN(iqn)
	}
	return target{portal, iqn}, err
}

// sessions are those with the target over the portal.
func (i iscsi) sessions(ctx context.Context, t target) ([]win32.Session, error) {
	all, err := i.machine.ISCSI.Sessions(ctx)
	if err != nil {
		return nil, failed(err, "list iSCSI sessions")
	}
	return slices.DeleteFunc(all, func(s win32.Session) bool {
		return !strings.EqualFold(s.IQN, t.iqn) || !slices.ContainsFunc(s.Portals, t.isAt)
	}), nil
}

// persistent are the logins with the target over the portal that Windows repeats
// at its start.
func (i iscsi) persistent(ctx context.Context, t target) ([]win32.PersistentLogin, error) {
	all, err := i.machine.ISCSI.PersistentLogins(ctx)
	if err != nil {
		return nil, failed(err, "list persistent iSCSI logins")
	}
	return slices.DeleteFunc(all, func(l win32.PersistentLogin) bool {
		return !strings.EqualFold(l.IQN, t.iqn) || !t.isAt(l.Portal)
	}), nil
}

// Connect makes a session and then a login that Windows repeats at its start, so that a
// secret that the target refuses is not stored. It leaves an existing one of the two as
// it is, so that a repeated call completes an interrupted one. If the session exists,
// the login is stored without being verified.
func (i iscsi) Connect(ctx context.Context, login api.ISCSILogin) error {
	t, err := checkTarget(login.Portal, login.IQN)
	if err != nil {
		return err
	}
	if err := checkLogin(login); err != nil {
		return err
	}
	login.Portal = t.portal
	_, err = initiator(ctx, i, []string{targetKey(t.iqn)}, noResult(func(ctx context.Context) error {
		return during(i.connect(ctx, t, login), "connect to %v", t)
	}))
	return err
}

func (i iscsi) connect(ctx context.Context, t target, login api.ISCSILogin) error {
	sessions, err := i.sessions(ctx, t)
	if err != nil {
		return err
	}
	kept, err := i.persistent(ctx, t)
	if err != nil {
		return err
	}
	if len(sessions) > 0 && len(kept) > 0 {
		return nil
	}
	_, err = i.machine.ISCSI.Login(ctx, login)
	if err != nil &&
		!isErrno(err, win32.ISDSCTargetAlreadyLoggedIn, win32.ISDSCSessionAlreadyExists, win32.ISDSCConnectionAlreadyExists) {
		return failed(err, "log in")
	}
	if len(kept) == 0 {
		if err := notBusy(ctx, func() error { return i.machine.ISCSI.Persist(ctx, login) }); err != nil {
			return failed(err, "store the login for Windows' next start")
		}
	}
	return i.isConnected(ctx, t)
}

// notBusy repeats a call while the session, or a device on it, is busy. It is for a
// short time after a login, because Windows identifies the devices.
func notBusy(ctx context.Context, call func() error) error {
	var failure error
	_, err := poll(ctx, busyLimit, func() (bool, error) {
		failure = call()
		return !isErrno(failure, win32.ISDSCSessionBusy, win32.ISDSCDeviceBusyOnSession), nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, failure)
	}
	return failure
}

// isConnected reads back the session and the persistent login.
func (i iscsi) isConnected(ctx context.Context, t target) error {
	sessions, err := i.sessions(ctx, t)
	if err != nil {
		return err
	}
	kept, err := i.persistent(ctx, t)
	if err != nil {
		return err
	}
	if len(sessions) == 0 || len(kept) == 0 {
		return fmt.Errorf("LoginIScsiTargetW answered success, but there are %d sessions and %d persistent logins",
			len(sessions), len(kept))
	}
	return nil
}

// Disconnect removes the persistent login first: after a crash between the two steps,
// the session does not return at Windows' next start.
func (i iscsi) Disconnect(ctx context.Context, portal api.Portal, iqn string) error {
	t, err := checkTarget(portal, iqn)
	if err != nil {
		return err
	}
	_, err = initiator(ctx, i, []string{targetKey(t.iqn)}, noResult(func(ctx context.Context) error {
		return during(i.disconnect(ctx, t), "disconnect from %v", t)
	}))
	return err
}

func (i iscsi) disconnect(ctx context.Context, t target) error {
	kept, err := i.persistent(ctx, t)
	if err != nil {
		return err
	}
	for _, login := range kept {
		if err := i.machine.ISCSI.RemovePersistentLogin(ctx, login); err != nil && !isErrno(err, win32.ISDSCNotFound) {
			return failed(err, "remove the persistent login")
		}
	}
	sessions, err := i.sessions(ctx, t)
	if err != nil {
		return err
	}
	for _, session := range sessions {
		err := notBusy(ctx, func() error { return i.machine.ISCSI.Logout(ctx, session.ID) })
		if err != nil && !isErrno(err, win32.ISDSCInvalidSessionID) {
			return failed(err, "log out")
		}
	}
	if sessions, err = i.sessions(ctx, t); err != nil {
		return err
	}
	if kept, err = i.persistent(ctx, t); err != nil {
		return err
	}
	if len(sessions)+len(kept) > 0 {
		return fmt.Errorf("LogoutIScsiTarget answered success, but %d sessions and %d persistent logins are still there",
			len(sessions), len(kept))
	}
	return nil
}

// Disks waits for the first disk of the session: it arrives some time after the
// login. A target that shows this machine no disk has none after that.
func (i iscsi) Disks(ctx context.Context, portal api.Portal, iqn string) ([]uint32, error) {
	t, err := checkTarget(portal, iqn)
	if err != nil {
		return nil, err
	}
	return initiator(ctx, i, []string{targetKey(t.iqn)}, func(ctx context.Context) ([]uint32, error) {
		var numbers []uint32
		_, err := poll(ctx, deviceLimit, func() (_ bool, err error) {
			var connected bool
			numbers, connected, err = i.devices(ctx, t)
			return len(numbers) > 0 || !connected, err
		})
		if err != nil {
			return nil, fmt.Errorf("disks of %v: %w", t, err)
		}
		return numbers, nil
	})
}

func (i iscsi) devices(ctx context.Context, t target) (numbers []uint32, connected bool, err error) {
	sessions, err := i.sessions(ctx, t)
	if err != nil {
		return nil, false, err
	}
	for _, session := range sessions {
		var devices []uint32
		err := notBusy(ctx, func() (err error) {
			devices, err = i.machine.ISCSI.Devices(ctx, session.ID)
			return err
		})
		if isErrno(err, win32.ISDSCDeviceNotFound) {
			continue
		}
		if err != nil {
			return nil, true, failed(err, "list the disks of a session")
		}
		numbers = append(numbers, devices...)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), len(sessions) > 0, nil
}
