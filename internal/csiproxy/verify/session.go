// Package verify has the assumptions about Windows that only the simulated machine and
// Microsoft's documents confirm, each with a check that asks Windows itself. `holdfast verify
// windows` runs them. Most read; those of files work in a directory of their own, and those
// of disks on one blank disk that the caller names by its number and its serial number.
package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/verify"
)

// Options configure a Session.
type Options struct {
	Machine win32.Machine
	// Host is the proxy's host over the same machine, whose rules allow Dir.
	Host api.Host
	// Dir is an existing, empty directory on an NTFS volume, without a last backslash.
	Dir string
	// Disk is the number of a blank disk that may be partitioned and formatted, and Serial
	// its serial number; "" for none.
	Disk   uint32
	Serial string
	Ledger *verify.Ledger
}

// Session is one run.
type Session struct {
	Options
	identity api.Identity // of the disk, once it is known to be the named one
	volume   string       // of the disk's partition
	folder   string       // where it is mounted
}

// New makes a session; Checks has what it runs.
func New(o Options) *Session { return &Session{Options: o} }

// CheckDir reports whether the directory can be used: it must be empty, so that everything in
// it is of the checks.
func (s *Session) CheckDir() error {
	if s.Dir == "" {
		return nil
	}
	d, err := s.Machine.Files.OpenRoot(s.Dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", s.Dir, err)
	}
	defer func() { _ = d.Close() }()
	entries, err := d.List()
	if err != nil {
		return fmt.Errorf("list %s: %w", s.Dir, err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty, it has %s: name an empty directory", s.Dir, entries[0].Name)
	}
	return nil
}

// Checks are all checks in their order. A check that lacks what it needs says so.
func (s *Session) Checks() []verify.Check {
	return slices.Concat(s.paths(), s.directories(), s.links(), s.devices(), s.volumes(), s.disk(), untested())
}

func check(id, statement, source, otherwise string, run func(context.Context) verify.Result) verify.Check {
	return verify.Check{
		Assumption: verify.Assumption{ID: id, Statement: statement, Source: source, Otherwise: otherwise}, Run: run,
	}
}

const (
	naming       = "Win32: Naming Files, Paths, and Namespaces"
	undocumented = "not documented"
)

// refused is the result for a call that Windows must refuse with one of the numbers.
func refused(err error, numbers ...win32.Errno) verify.Result {
	number, ok := errors.AsType[win32.Errno](err)
	switch {
	case err == nil:
		return verify.Differed("Windows answered success")
	case ok && slices.Contains(numbers, number):
		return verify.Held("%v", number)
	}
	return verify.Differed("%v", err)
}

// all is the result of several observations, of which the first that does not hold counts.
func all(results ...verify.Result) verify.Result {
	for _, r := range results {
		if r.Outcome != verify.Holds {
			return r
		}
	}
	return results[len(results)-1]
}

// about names what a result is of, if it does not hold.
func about(what string, r verify.Result) verify.Result {
	if r.Outcome != verify.Holds {
		r.Seen = what + ": " + r.Seen
	}
	return r
}

// succeeded is the result for a call that must succeed.
func succeeded(err error) verify.Result {
	if err != nil {
		return verify.Differed("%v", err)
	}
	return verify.Held("success")
}

// expect is the result for a value that must be equal to another.
func expect[T comparable](got, want T) verify.Result {
	if got != want {
		return verify.Differed("%v, not %v", got, want)
	}
	return verify.Held("%v", got)
}

// in runs f with the session's directory open.
func (s *Session) in(f func(win32.Directory) verify.Result) func(context.Context) verify.Result {
	return func(context.Context) verify.Result {
		if s.Dir == "" {
			return verify.Skipped("it makes files: name a directory with --dir")
		}
		d, err := s.Machine.Files.OpenRoot(s.Dir)
		if err != nil {
			return verify.Differed("open %s: %v", s.Dir, err)
		}
		defer func() { _ = d.Close() }()
		return f(d)
	}
}

// with runs f with a fresh directory of that name in d, which it empties and removes.
func with(d win32.Directory, name string, f func() verify.Result) verify.Result {
	if err := d.Mkdir(name); err != nil {
		return verify.Differed("Mkdir %s: %v", name, err)
	}
	result := f()
	if err := d.Remove(name); err != nil && result.Outcome == verify.Holds {
		return verify.Differed("Remove %s: %v", name, err)
	}
	return result
}

// untested are assumptions that need a server, a restart or a second program. They have a
// line in the report, since only the simulated machine confirms them.
func untested() []verify.Check {
	row := func(id, statement, needs string) verify.Check {
		return check(id, statement, "simulation/windows", "see docs/reference/windows.md", func(context.Context) verify.Result {
			return verify.Skipped("%s", needs)
		})
	}
	return []verify.Check{
		row("win-smb-mapping", "MSFT_SmbGlobalMapping.Create maps a share for the whole machine, and a second one with other credentials is refused", "it needs an SMB server"),
		row("win-smb-reconnects", "a mapping of a server that was away has a status other than 0 and reconnects", "it needs an SMB server"),
		row("win-iscsi-login", "LoginIScsiTargetW opens a session whose disks arrive later", "it needs an iSCSI target"),
		row("win-iscsi-busy", "a session cannot be ended right after its login: ISDSC_SESSION_BUSY", "it needs an iSCSI target"),
		row("win-iscsi-persistent", "a persistent login is repeated when Windows starts", "it needs an iSCSI target and a restart"),
		row("win-attributes-persist", "attributes of a disk that were set with Persist survive a restart, others do not", "it needs a restart"),
		row("win-numbers-change", "the number of a disk may change over a restart; its serial number does not", "it needs a restart"),
		row("win-pipe-first", "a second process cannot create the first instance of a pipe (FILE_FLAG_FIRST_PIPE_INSTANCE)", "start csi-proxy twice, as docs/guides/verify-on-windows.md says"),
		row("win-pipe-descriptor", "a user who is not in the pipe's security descriptor cannot open it", "open the pipe as another user, as docs/guides/verify-on-windows.md says"),
	}
}
