package windows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

const (
	iscsiService     = "MSiSCSI"
	defaultPort      = 3260
	shortestSecret   = 12 // bytes, without IPsec
	longestSecret    = 16
	highestPort      = 65535
	adapterUnique    = 0xFFFFE00000000001
	longestISCSIName = 223
)

// ISCSITarget is a target in the network.
type ISCSITarget struct {
	Portal api.Portal
	IQN    string
	// User and Secret are those that CHAP requires; "" for a target without CHAP.
	// MutualSecret is the secret by which the target authenticates itself.
	User, Secret, MutualSecret string
	LUNs                       []DiskSpec
}

// target is a target with its disks, whether they are attached or not.
type target struct {
	ISCSITarget
	disks []*disk
	away  bool
}

// session is a session with a target.
type session struct {
	id     win32.SessionID
	target *target
	portal api.Portal
	since  time.Time
}

// busyAtFirst returns the error of a session that has just begun; nil later. Windows finds the
// session's devices meanwhile.
func (m *Machine) busyAtFirst(s *session) error {
	switch age := time.Since(s.since); {
	case age >= m.options.SessionBusy:
		return nil
	case age >= m.options.SessionBusy/2:
		return win32.ISDSCDeviceBusyOnSession
	}
	return win32.ISDSCSessionBusy
}

// initiator is the state of the machine's initiator.
type initiator struct {
	targets    []*target // in the network
	portals    []api.Portal
	found      map[api.Portal][]string
	sessions   []*session
	logins     uint64
	persistent []api.ISCSILogin
	secret     string
}

func port(portal api.Portal) api.Portal {
	portal.Address = strings.ToLower(portal.Address)
	if portal.Port == 0 {
		portal.Port = defaultPort
	}
	return portal
}

// AddTarget puts a target into the network.
func (m *Machine) AddTarget(spec ISCSITarget) error {
	spec.Portal = port(spec.Portal)
	t := &target{ISCSITarget: spec}
	for i, lun := range spec.LUNs {
		lun.Bus = win32.BusISCSI
		if lun.Location == nil {
			lun.Location = &win32.SCSIAddress{Port: 4, LUN: uint8(i)}
		}
		d, err := newDisk(lun)
		if err != nil {
			return fmt.Errorf("LUN %d: %w", i, err)
		}
		t.disks = append(t.disks, d)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.target(spec.IQN) != nil {
		return fmt.Errorf("simulated: target %q is there already", spec.IQN)
	}
	m.iscsi.targets = append(m.iscsi.targets, t)
	return nil
}

// SetTargetReachable takes a target off the network or puts it back. Sessions
// with it stay, as Windows tries to repair them.
func (m *Machine) SetTargetReachable(iqn string, reachable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.target(iqn); t != nil {
		t.away = !reachable
	}
}

func (m *Machine) target(iqn string) *target {
	for _, t := range m.iscsi.targets {
		if strings.EqualFold(t.IQN, iqn) {
			return t
		}
	}
	return nil
}

func (m *Machine) session(id win32.SessionID) *session {
	for _, s := range m.iscsi.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// discover returns the targets of a portal.
func (m *Machine) discover(portal api.Portal) error {
	var iqns []string
	for _, t := range m.iscsi.targets {
		if t.Portal == portal && !t.away {
			iqns = append(iqns, t.IQN)
		}
	}
	if iqns == nil {
		return win32.ISDSCConnectionFailed
	}
	if m.iscsi.found == nil {
		m.iscsi.found = map[api.Portal][]string{}
	}
	m.iscsi.found[portal] = iqns
	return nil
}

// login makes a session.
func (m *Machine) login(login api.ISCSILogin) (*session, error) {
	portal := port(login.Portal)
	known := func(iqn string) bool { return strings.EqualFold(iqn, login.IQN) }
	t := m.target(login.IQN)
	switch {
	case len(login.IQN) > longestISCSIName || !strings.Contains(login.IQN, "."):
		return nil, win32.ISDSCInvalidISCSIName
	case !slices.ContainsFunc(m.iscsi.found[portal], known):
		return nil, win32.ISDSCTargetNotFound
	case slices.ContainsFunc(m.iscsi.sessions, func(s *session) bool { return s.target == t }):
		return nil, win32.ISDSCTargetAlreadyLoggedIn
	case t == nil || t.away || t.Portal != portal:
		return nil, win32.ISDSCConnectionFailed
	}
	if err := m.authenticate(t, login); err != nil {
		return nil, err
	}
	m.iscsi.logins++
	s := &session{id: win32.SessionID{
		AdapterUnique: adapterUnique, AdapterSpecific: 0x400001370000 + m.iscsi.logins,
	}, target: t, portal: portal, since: time.Now()}
	m.iscsi.sessions = append(m.iscsi.sessions, s)
	for _, d := range t.disks {
		d.session = s
		m.attach(d, m.options.DeviceDelay)
	}
	return s, nil
}

// authenticate is CHAP (RFC 7143, section 9.2): both sides must want it, and
// secrets without IPsec have 12 to 16 bytes.
func (m *Machine) authenticate(t *target, login api.ISCSILogin) error {
	secret := login.Secret.Reveal()
	switch login.Auth {
	case api.NoAuth:
		if t.Secret != "" {
			return win32.ISDSCAuthenticationFailure
		}
		return nil
	case api.OneWayCHAP, api.MutualCHAP:
	default:
		return win32.ISDSCInvalidLogonAuthType
	}
	switch {
	case len(secret) < shortestSecret || len(secret) > longestSecret:
		return win32.ISDSCInvalidCHAPSecret
	case t.Secret == "" || t.User != login.Username || t.Secret != secret:
		return win32.ISDSCAuthenticationFailure
	case login.Auth == api.MutualCHAP && (m.iscsi.secret == "" || m.iscsi.secret != t.MutualSecret):
		return win32.ISDSCAuthenticationFailure
	}
	return nil
}

// logout ends a session, unless something on its disks is in use.
func (m *Machine) logout(s *session) error {
	if err := m.busyAtFirst(s); err != nil {
		return err
	}
	for _, d := range s.target.disks {
		if m.busy(d) {
			return win32.ISDSCDeviceBusyOnSession
		}
	}
	m.endSession(s)
	return nil
}

func (m *Machine) endSession(s *session) {
	for _, d := range s.target.disks {
		m.pull(d)
		d.session = nil
	}
	m.iscsi.sessions = slices.DeleteFunc(m.iscsi.sessions, func(other *session) bool { return other == s })
}

// busy reports whether a handle of the disk, or a file on it, is open.
func (m *Machine) busy(d *disk) bool {
	for c := range m.clients {
		for h := range c.handles {
			if dev, ok := h.(*device); ok && dev.disk == d && dev.access != win32.Query {
				return true
			}
		}
	}
	return slices.ContainsFunc(d.table.partitions, func(p *partition) bool { return p.volume != nil && p.volume.inUse() })
}

// repeatLogins makes the sessions that Windows makes whenever its service starts.
func (m *Machine) repeatLogins() {
	for _, login := range m.iscsi.persistent {
		_, _ = m.login(login) // one that fails is tried again at the next start
	}
}
