package simulated

import "github.com/holdfast-csi/holdfast/internal/csiproxy/win32"

// share is a share of an SMB server.
type share struct{ total, free uint64 }

func (s *share) space() win32.FreeSpace {
	return win32.FreeSpace{Available: s.free, Total: s.total, Free: s.free}
}

func (m *Machine) remote(parsed) (place, error) { return place{}, win32.ErrorBadNetPath }

type session struct{}
