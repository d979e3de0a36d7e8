package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/pidfd"
)

// process is a running driver.
type process struct {
	*pidfd.Process
	child *exec.Cmd // nil for one that an earlier host started
}

// firstOther is the first descriptor after the standard ones.
const firstOther = 3

// launch starts a process that outlives this one: in its own session, with its
// output in a file, and not bound to a context.
func launch(command *exec.Cmd, account string) (*process, error) {
	// Drivers may run as another user and must not inherit the descriptors that this
	// process inherited. Go marks its own close-on-exec; a kernel before 5.11 leaves
	// the others open.
	_ = unix.CloseRange(firstOther, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if account != "" {
		credential, err := credentialOf(account)
		if err != nil {
			return nil, err
		}
		command.SysProcAttr.Credential = credential
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	found, err := pidfd.Find(command.Process.Pid, 0)
	if found == nil {
		return nil, errors.Join(err, command.Process.Kill(), command.Wait())
	}
	return &process{Process: found, child: command}, nil
}

// adopt opens the process of a record; nil if it has ended.
func adopt(known processRecord) (*process, error) {
	pid := known.PID
	if pid == 0 { // the host ended before it recorded the process ID
		var err error
		if pid, err = findToken(known.Token); err != nil || pid == 0 {
			return nil, err
		}
	}
	found, err := pidfd.Find(pid, known.Start)
	if found == nil {
		return nil, err
	}
	return &process{Process: found}, nil
}

// findToken returns the ID of the process that has a token in its environment, 0 if
// there is none.
func findToken(token string) (int, error) {
	directories, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	desired := []byte(tokenVariable + "=" + token)
	for _, directory := range directories {
		environment, err := os.ReadFile(filepath.Join(directory, "environ"))
		if err != nil {
			continue // the process ended meanwhile
		}
		for line := range bytes.SplitSeq(environment, []byte{0}) {
			if !bytes.Equal(line, desired) {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(directory)); err == nil && !isChildOf(pid, token) {
				return pid, nil
			}
		}
	}
	return 0, nil
}

// isChildOf reports whether a process has inherited the token from its parent.
func isChildOf(pid int, token string) bool {
	stat, err := pidfd.StatOf(strconv.Itoa(pid))
	if err != nil {
		return false
	}
	environment, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(stat.Parent), "environ"))
	return err == nil && bytes.Contains(environment, []byte(tokenVariable+"="+token))
}

// exited returns nil when the process has ended, or the context's error.
func (p *process) exited(ctx context.Context) error { return p.Wait(ctx) }

// reap waits for a child and describes how the process ended.
func (p *process) reap() string {
	if p.child == nil {
		return "with an unknown status: an earlier host started it"
	}
	_ = p.child.Wait() // ProcessState has the result
	return p.child.ProcessState.String()
}

// signal sends SIGTERM or SIGKILL to the process.
func (p *process) signal(kill bool) error {
	if kill {
		return p.Signal(unix.SIGKILL)
	}
	return p.Signal(unix.SIGTERM)
}

func (p *process) close() { _ = p.Close() }

// chownTo changes the owner of a directory, but not of its contents, to an account,
// or to this process's user if account is empty.
func chownTo(directory, account string) error {
	uid, gid := os.Geteuid(), os.Getegid()
	if account != "" {
		credential, err := credentialOf(account)
		if err != nil {
			return err
		}
		uid, gid = int(credential.Uid), int(credential.Gid)
	}
	return os.Lchown(directory, uid, gid)
}

// credentialOf reads USER or USER:GROUP, each a number or a name.
func credentialOf(account string) (*syscall.Credential, error) {
	name, group, given := strings.Cut(account, ":")
	found, err := user.Lookup(name)
	if err != nil {
		if found, err = user.LookupId(name); err != nil {
			if _, number := strconv.ParseUint(name, 10, 32); number != nil || !given {
				return nil, fmt.Errorf("user %q: %w", account, err)
			}
			found = &user.User{Uid: name}
		}
	}
	gid := found.Gid
	if given {
		gid = group
		if known, err := user.LookupGroup(group); err == nil {
			gid = known.Gid
		}
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %q: %w", account, err)
	}
	number, err := strconv.ParseUint(gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %q: group: %w", account, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(number)}, nil
}

// trusted returns an error for a file or directory that users other than this one
// and root can change: a unit names commands that run with this user's rights.
func trusted(path string, info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("its mode %s lets others write it: chmod go-w %s", info.Mode(), path)
	case ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d, who could have anything run: chown root %s", stat.Uid, path)
	}
	return nil
}
