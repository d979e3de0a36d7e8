package windows

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Status of a mapping (MSFT_SmbGlobalMapping).
const (
	MappingOK           uint32 = 0
	MappingPaused       uint32 = 1
	MappingDisconnected uint32 = 2
	MappingNetworkError uint32 = 3
	MappingConnecting   uint32 = 4
	MappingReconnecting uint32 = 5
	MappingUnavailable  uint32 = 6
)

// SMBShare is a share of a server in the network.
type SMBShare struct {
	Server, Share string
	// Users are the share's users, with their passwords; an empty map opens it to
	// everybody. Denied are users of the server that may not use this share.
	Users, Denied map[string]string
	// NoEncryption is a server that cannot do privacy; PrivacyError is what it says
	// then, 0 for ERROR_NETWORK_ACCESS_DENIED (65).
	NoEncryption bool
	PrivacyError win32.Errno
	// Total and Free are in bytes.
	Total, Free uint64
}

// share is a share, and whether its server is in reach.
type share struct {
	SMBShare
	away bool
	open map[*OpenFile]struct{}
}

// mapping is a global mapping of this machine.
type mapping struct {
	remote, server string // \\server\share, as it was asked for
	user, password string
	privacy        bool
	disconnected   bool    // the next use connects again
	forced         *uint32 // a status that a test has set
}

// AddShare puts a share into the network, or replaces it.
func (m *Machine) AddShare(spec SMBShare) error {
	if spec.Server == "" || spec.Share == "" || strings.ContainsAny(spec.Server+spec.Share, `\/`) {
		return fmt.Errorf("simulated: a share %q of a server %q", spec.Share, spec.Server)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.share(spec.Server, spec.Share); s != nil {
		s.SMBShare = spec
		return nil
	}
	m.shares = append(m.shares, &share{SMBShare: spec, open: map[*OpenFile]struct{}{}})
	return nil
}

// SetServerReachable takes a server off the network, or puts it back; both end
// its connections.
func (m *Machine) SetServerReachable(server string, reachable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.shares {
		if strings.EqualFold(s.Server, server) {
			s.away = !reachable
		}
	}
	m.disconnect(server)
}

// Disconnect ends the connections to a server. The next use of a mapping connects
// again, which fails if the password has changed.
func (m *Machine) Disconnect(server string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disconnect(server)
}

func (m *Machine) disconnect(server string) {
	for _, mapped := range m.mappings {
		if strings.EqualFold(mapped.server, server) {
			mapped.disconnected = true
		}
	}
}

// SetMappingStatus makes a mapping report a status from now on. With any but
// MappingOK its use fails.
func (m *Machine) SetMappingStatus(remote string, status uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	mapped := m.mapping(remote)
	if mapped == nil {
		return fmt.Errorf("simulated: %s is not mapped", remote)
	}
	mapped.forced = &status
	return nil
}

// MappedUser is the user that a share is mapped for.
func (m *Machine) MappedUser(remote string) (user string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mapped := m.mapping(remote); mapped != nil {
		return mapped.user, true
	}
	return "", false
}

func (m *Machine) share(server, name string) *share {
	for _, s := range m.shares {
		if strings.EqualFold(s.Server, server) && strings.EqualFold(s.Share, name) {
			return s
		}
	}
	return nil
}

func (m *Machine) mapping(remote string) *mapping {
	for _, mapped := range m.mappings {
		if strings.EqualFold(mapped.remote, remote) {
			return mapped
		}
	}
	return nil
}

// reachable finds a share in the network: ERROR_BAD_NETPATH (53) for the server,
// ERROR_BAD_NET_NAME (67) for the share.
func (m *Machine) reachable(server, name string) (*share, error) {
	for _, s := range m.shares {
		if !strings.EqualFold(s.Server, server) || s.away {
			continue
		}
		if s = m.share(server, name); s != nil {
			return s, nil
		}
		return nil, win32.ErrorBadNetName
	}
	return nil, win32.ErrorBadNetPath
}

// admits returns the server's error for a user.
func (s *share) admits(user, password string) error {
	known, want, denied := len(s.Users) == 0 && len(s.Denied) == 0, password, false
	for name, secret := range s.Users {
		if strings.EqualFold(name, user) {
			known, want = true, secret
		}
	}
	for name, secret := range s.Denied {
		if strings.EqualFold(name, user) {
			known, want, denied = true, secret, true
		}
	}
	switch {
	case !known:
		return win32.ErrorLogonFailure
	case want != password:
		return win32.ErrorInvalidPassword
	case denied:
		return win32.ErrorAccessDenied
	}
	return nil
}

func (s *share) space() win32.FreeSpace {
	return win32.FreeSpace{Available: s.Free, Total: s.Total, Free: s.Free}
}

// remote is the target of a path on a share. Directories below shares are not
// modelled: each exists.
func (m *Machine) remote(p parsed) (resolved, error) {
	s, err := m.reachable(p.server, p.share)
	if err != nil {
		return resolved{}, err
	}
	mapped := m.mapping(`\\` + p.server + `\` + p.share)
	switch {
	case mapped == nil && len(s.Users)+len(s.Denied) > 0:
		return resolved{}, win32.ErrorAccessDenied
	case mapped == nil:
		return resolved{share: s}, nil
	case mapped.forced != nil && *mapped.forced != MappingOK:
		return resolved{}, win32.ErrorNetNameDeleted
	}
	if mapped.disconnected {
		if err := s.admits(mapped.user, mapped.password); err != nil {
			return resolved{}, err
		}
		mapped.disconnected = false
	}
	return resolved{share: s}, nil
}

func (m *Machine) mappingStatus(mapped *mapping) uint32 {
	switch {
	case mapped.forced != nil:
		return *mapped.forced
	case mapped.disconnected:
		return MappingDisconnected
	}
	return MappingOK
}

type smbCalls struct{ c *client }

// Mappings implements win32.SMB.
func (s smbCalls) Mappings(ctx context.Context) ([]win32.SMBMapping, error) {
	return invoke(ctx, s.c, Call{Name: "SMB.Mappings"}, func() ([]win32.SMBMapping, error) {
		var list []win32.SMBMapping
		for _, mapped := range s.c.m.mappings {
			list = append(list, win32.SMBMapping{Remote: mapped.remote, Status: s.c.m.mappingStatus(mapped)})
		}
		return list, nil
	})
}

// Create implements win32.SMB.
func (s smbCalls) Create(ctx context.Context, request win32.SMBMappingRequest) error {
	call := Call{Name: "SMB.Create", Targets: []string{request.Remote}, Changes: true}
	return do(ctx, s.c, call, func() error { return s.c.m.mapShare(request) })
}

// mapShare makes a mapping. All connections to one server are those of one user
// (ERROR_SESSION_CREDENTIAL_CONFLICT, 1219).
func (m *Machine) mapShare(request win32.SMBMappingRequest) error {
	p, err := parse(request.Remote)
	if err != nil || p.server == "" || len(p.components) > 0 || strings.HasPrefix(request.Remote, `\\?\`) {
		return win32.ErrorBadNetName
	}
	s, err := m.reachable(p.server, p.share)
	if err != nil {
		return err
	}
	for _, other := range m.mappings {
		if strings.EqualFold(other.server, p.server) && !strings.EqualFold(other.user, request.Username) {
			return win32.ErrorSessionCredentialConflict
		}
	}
	if request.RequirePrivacy && s.NoEncryption {
		if s.PrivacyError != 0 {
			return s.PrivacyError
		}
		return win32.ErrorNetworkAccessDenied
	}
	if err := s.admits(request.Username, request.Password.Reveal()); err != nil {
		return err
	}
	made := &mapping{
		remote: request.Remote, server: p.server, user: request.Username, password: request.Password.Reveal(),
		privacy: request.RequirePrivacy,
	}
	if old := m.mapping(request.Remote); old != nil {
		*old = *made
		return nil
	}
	m.mappings = append(m.mappings, made)
	return nil
}

// Remove implements win32.SMB: without force not while a file is open.
func (s smbCalls) Remove(ctx context.Context, remote string, force bool) error {
	call := Call{Name: "SMB.Remove", Targets: []string{remote}, Changes: true}
	return do(ctx, s.c, call, func() error {
		m := s.c.m
		mapped := m.mapping(remote)
		if mapped == nil {
			return win32.ErrorNotConnected
		}
		_, name, _ := strings.Cut(strings.TrimPrefix(remote, `\\`), `\`)
		if target := m.share(mapped.server, name); target != nil {
			if len(target.open) > 0 && !force {
				return win32.ErrorOpenFiles
			}
			clear(target.open)
		}
		m.mappings = slices.DeleteFunc(m.mappings, func(other *mapping) bool { return other == mapped })
		return nil
	})
}
