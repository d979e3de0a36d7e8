package windows

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

type iscsiCalls struct{ c *client }

// iscsi makes a call that needs the initiator's service.
func iscsi[T any](ctx context.Context, c *client, call Call, effect func(*Machine) (T, error)) (T, error) {
	return invoke(ctx, c, call, func() (T, error) {
		if s := c.m.service(iscsiService); s == nil || s.state != serviceRunning {
			var zero T
			return zero, win32.ISDSCServiceNotRunning
		}
		return effect(c.m)
	})
}

// AddPortal implements win32.ISCSI.
func (i iscsiCalls) AddPortal(ctx context.Context, portal api.Portal) error {
	portal = port(portal)
	call := Call{Name: "ISCSI.AddPortal", Targets: []string{portal.Address}, Changes: true}
	_, err := iscsi(ctx, i.c, call, func(m *Machine) (none, error) {
		if portal.Address == "" || portal.Port > highestPort {
			return none{}, win32.ISDSCInvalidParameter
		}
		if err := m.discover(portal); err != nil {
			return none{}, err
		}
		if !slices.Contains(m.iscsi.portals, portal) {
			m.iscsi.portals = append(m.iscsi.portals, portal)
		}
		return none{}, nil
	})
	return err
}

// RemovePortal implements win32.ISCSI.
func (i iscsiCalls) RemovePortal(ctx context.Context, portal api.Portal) error {
	portal = port(portal)
	call := Call{Name: "ISCSI.RemovePortal", Targets: []string{portal.Address}, Changes: true}
	_, err := iscsi(ctx, i.c, call, func(m *Machine) (none, error) {
		at := slices.Index(m.iscsi.portals, portal)
		if at < 0 {
			return none{}, win32.ISDSCPortalNotFound
		}
		m.iscsi.portals = slices.Delete(m.iscsi.portals, at, at+1)
		delete(m.iscsi.found, portal)
		return none{}, nil
	})
	return err
}

// Portals implements win32.ISCSI.
func (i iscsiCalls) Portals(ctx context.Context) ([]api.Portal, error) {
	return iscsi(ctx, i.c, Call{Name: "ISCSI.Portals"}, func(m *Machine) ([]api.Portal, error) {
		return slices.Clone(m.iscsi.portals), nil
	})
}

// Targets implements win32.ISCSI.
func (i iscsiCalls) Targets(ctx context.Context, portal api.Portal, update bool) ([]string, error) {
	portal = port(portal)
	call := Call{Name: "ISCSI.Targets", Targets: []string{portal.Address}}
	return iscsi(ctx, i.c, call, func(m *Machine) ([]string, error) {
		if !slices.Contains(m.iscsi.portals, portal) {
			return nil, win32.ISDSCPortalNotFound
		}
		if update {
			if err := m.discover(portal); err != nil {
				return nil, err
			}
		}
		return slices.Clone(m.iscsi.found[portal]), nil
	})
}

// Login implements win32.ISCSI.
func (i iscsiCalls) Login(ctx context.Context, login api.ISCSILogin) (win32.SessionID, error) {
	call := Call{Name: "ISCSI.Login", Targets: []string{login.IQN, login.Portal.Address}, Changes: true}
	return iscsi(ctx, i.c, call, func(m *Machine) (win32.SessionID, error) {
		s, err := m.login(login)
		if err != nil {
			return win32.SessionID{}, err
		}
		return s.id, nil
	})
}

// Persist implements win32.ISCSI. Windows keeps the login as it is, right or wrong.
func (i iscsiCalls) Persist(ctx context.Context, login api.ISCSILogin) error {
	login.Portal = port(login.Portal)
	call := Call{Name: "ISCSI.Persist", Targets: []string{login.IQN, login.Portal.Address}, Changes: true}
	_, err := iscsi(ctx, i.c, call, func(m *Machine) (none, error) {
		known := func(iqn string) bool { return strings.EqualFold(iqn, login.IQN) }
		if !slices.ContainsFunc(m.iscsi.found[login.Portal], known) {
			return none{}, win32.ISDSCTargetNotFound
		}
		for _, s := range m.iscsi.sessions {
			if err := m.busyAtFirst(s); err != nil && known(s.target.IQN) {
				return none{}, err
			}
		}
		m.forgetLogin(win32.PersistentLogin{IQN: login.IQN, Portal: login.Portal})
		m.iscsi.persistent = append(m.iscsi.persistent, login)
		return none{}, nil
	})
	return err
}

// Logout implements win32.ISCSI.
func (i iscsiCalls) Logout(ctx context.Context, id win32.SessionID) error {
	_, err := iscsi(ctx, i.c, i.on("ISCSI.Logout", id, true), func(m *Machine) (none, error) {
		s := m.session(id)
		if s == nil {
			return none{}, win32.ISDSCInvalidSessionID
		}
		return none{}, m.logout(s)
	})
	return err
}

// on describes a call on a session.
func (i iscsiCalls) on(name string, id win32.SessionID, changes bool) Call {
	i.c.m.mu.Lock()
	defer i.c.m.mu.Unlock()
	call := Call{Name: name, Changes: changes}
	if s := i.c.m.session(id); s != nil {
		call.Targets = []string{s.target.IQN, s.portal.Address}
	}
	return call
}

// Sessions implements win32.ISCSI.
func (i iscsiCalls) Sessions(ctx context.Context) ([]win32.Session, error) {
	return iscsi(ctx, i.c, Call{Name: "ISCSI.Sessions"}, func(m *Machine) ([]win32.Session, error) {
		var list []win32.Session
		for _, s := range m.iscsi.sessions {
			list = append(list, win32.Session{ID: s.id, IQN: s.target.IQN, Portals: []api.Portal{s.portal}})
		}
		return list, nil
	})
}

// Devices implements win32.ISCSI.
func (i iscsiCalls) Devices(ctx context.Context, id win32.SessionID) ([]uint32, error) {
	return iscsi(ctx, i.c, i.on("ISCSI.Devices", id, false), func(m *Machine) ([]uint32, error) {
		s := m.session(id)
		if s == nil {
			return nil, win32.ISDSCInvalidSessionID
		}
		if err := m.busyAtFirst(s); err != nil {
			return nil, err
		}
		var numbers []uint32
		for _, d := range s.target.disks {
			if d.present {
				numbers = append(numbers, d.number)
			}
		}
		return numbers, nil
	})
}

// PersistentLogins implements win32.ISCSI.
func (i iscsiCalls) PersistentLogins(ctx context.Context) ([]win32.PersistentLogin, error) {
	return iscsi(ctx, i.c, Call{Name: "ISCSI.PersistentLogins"}, func(m *Machine) ([]win32.PersistentLogin, error) {
		var list []win32.PersistentLogin
		for _, login := range m.iscsi.persistent {
			list = append(list, win32.PersistentLogin{IQN: login.IQN, Portal: login.Portal})
		}
		return list, nil
	})
}

// RemovePersistentLogin implements win32.ISCSI.
func (i iscsiCalls) RemovePersistentLogin(ctx context.Context, login win32.PersistentLogin) error {
	call := Call{Name: "ISCSI.RemovePersistentLogin", Targets: []string{login.IQN}, Changes: true}
	_, err := iscsi(ctx, i.c, call, func(m *Machine) (none, error) {
		if !m.forgetLogin(login) {
			return none{}, win32.ISDSCTargetNotFound
		}
		return none{}, nil
	})
	return err
}

func (m *Machine) forgetLogin(login win32.PersistentLogin) bool {
	before := len(m.iscsi.persistent)
	m.iscsi.persistent = slices.DeleteFunc(m.iscsi.persistent, func(other api.ISCSILogin) bool {
		return strings.EqualFold(other.IQN, login.IQN) && other.Portal == port(login.Portal)
	})
	return len(m.iscsi.persistent) < before
}

// SetSharedSecret implements win32.ISCSI.
func (i iscsiCalls) SetSharedSecret(ctx context.Context, secret api.Secret) error {
	call := Call{Name: "ISCSI.SetSharedSecret", Changes: true}
	_, err := iscsi(ctx, i.c, call, func(m *Machine) (none, error) {
		if n := len(secret.Reveal()); n < shortestSecret || n > longestSecret {
			return none{}, win32.ISDSCInvalidCHAPSecret
		}
		m.iscsi.secret = secret.Reveal()
		return none{}, nil
	})
	return err
}
