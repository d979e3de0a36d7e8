// Package host is the API over the calls of one Windows machine. Each operation
// observes, acts and reads back: a success that Windows reports is checked. It
// records only state that Windows does not report.
//
// docs/reference/windows.md lists the rules, and for each the tests that prove it.
//
// It runs the same over the calls of Windows and over a simulated machine.
package host

import (
	"errors"
	"log/slog"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// StateDir is where hosts of Windows keep their state. All processes that work on
// one machine share it: one may complete the operation that another has begun.
const StateDir = `C:\ProgramData\holdfast\csi-proxy`

// Options configure a host.
type Options struct {
	Machine win32.Machine
	// Rules are the directories that paths must lie below.
	Rules *paths.Rules
	// Services are the names that System knows, in any case.
	Services []string
	// RequirePrivacy makes SMB mappings require encryption.
	RequirePrivacy bool
	// StateDir is the directory for state that Windows does not report; "" keeps it
	// in memory only.
	StateDir string
	// Logger may be nil.
	Logger *slog.Logger
}

// Host implements package api on one machine.
type Host struct {
	machine win32.Machine
	rules   *paths.Rules
	options Options
	logger  *slog.Logger
	roots   []*root
	files   chan struct{} // the threads that operations on directories may block
	tasks   *tasks
	*storage
}

// New opens the roots and keeps them open until Close: if a root's path is renamed
// or replaced, operations still work in the directory that was opened. A root that
// does not exist yet is opened when it is first needed.
func New(options Options) (*Host, error) {
	if options.Rules == nil || options.Machine.Files == nil {
		return nil, errors.New("a host needs the rules of paths and a machine")
	}
	h := &Host{machine: options.Machine, rules: options.Rules, options: options, logger: options.Logger,
		files: make(chan struct{}, filesAtOnce)}
	if h.logger == nil {
		h.logger = slog.New(slog.DiscardHandler)
	}
	h.tasks = newTasks(h.logger)
	var err error
	if h.storage, err = newStorage(options, h.logger); err != nil {
		return nil, err
	}
	for _, path := range options.Rules.Roots() {
		h.roots = append(h.roots, newRoot(path, options.Machine.Files, h.logger))
	}
	return h, nil
}

// API returns the host's groups.
func (h *Host) API() api.Host {
	return api.Host{
		Filesystem: filesystem{h}, Disks: disks{h}, Volumes: volumes{h},
		SMB: smb{h}, ISCSI: iscsi{h}, System: system{h},
	}
}

// Close closes the roots. Operations fail from then on.
func (h *Host) Close() {
	for _, r := range h.roots {
		r.close()
	}
}

// volumes is api.Volumes; at.go has its methods that take paths.
type volumes struct{ *Host }
