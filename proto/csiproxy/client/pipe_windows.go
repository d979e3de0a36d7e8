package client

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// dialPipe connects to a pipe anonymously, so that the process that serves it cannot borrow
// this process's rights, and looks at who does.
func dialPipe(ctx context.Context, pipe string, check ServerCheck) (net.Conn, error) {
	conn, err := winio.DialPipeContext(ctx, pipe)
	if err != nil {
		return nil, err
	}
	if check == CheckNever {
		return conn, nil
	}
	trusted, who, err := serverOf(conn)
	switch {
	case err != nil && check == CheckAlways:
		err = fmt.Errorf("%w: Windows does not report the process that serves %s: %w", ErrServer, pipe, err)
	case err == nil && !trusted:
		err = fmt.Errorf("%w: %s is served by %s, which is neither SYSTEM nor an administrator", ErrServer, pipe, who)
	default:
		return conn, nil
	}
	_ = conn.Close()
	return nil, err
}

// serverOf reports whether the process that serves a pipe is SYSTEM's or an
// administrator's. The number of a process can be another's by the time it is
// opened, so the answer keeps mistakes out and lazy impostors, not all.
func serverOf(conn net.Conn) (trusted bool, who string, err error) {
	file, ok := conn.(interface{ Fd() uintptr })
	if !ok {
		return false, "", fmt.Errorf("the connection is a %T without a handle", conn)
	}
	var process uint32
	if err := windows.GetNamedPipeServerProcessId(windows.Handle(file.Fd()), &process); err != nil {
		return false, "", fmt.Errorf("asking for the server's process: %w", err)
	}
	handle, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, process)
	if err != nil {
		return false, "", fmt.Errorf("opening process %d: %w", process, err)
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	var token windows.Token
	if err := windows.OpenProcessToken(handle, windows.TOKEN_QUERY, &token); err != nil {
		return false, "", fmt.Errorf("opening the token of process %d: %w", process, err)
	}
	defer func() { _ = token.Close() }()
	trusted, sid, err := isTrusted(token)
	return trusted, fmt.Sprintf("process %d of %s", process, sid), err
}

// isTrusted looks at the token's user and at the groups that are enabled in it.
func isTrusted(token windows.Token) (trusted bool, sid string, err error) {
	user, err := token.GetTokenUser()
	if err != nil {
		return false, "", fmt.Errorf("reading the user: %w", err)
	}
	sid = user.User.Sid.String()
	if user.User.Sid.IsWellKnown(windows.WinLocalSystemSid) {
		return true, sid, nil
	}
	groups, err := token.GetTokenGroups()
	if err != nil {
		return false, sid, fmt.Errorf("reading the groups: %w", err)
	}
	for _, group := range groups.AllGroups() {
		if group.Sid.IsWellKnown(windows.WinBuiltinAdministratorsSid) && group.Attributes&windows.SE_GROUP_ENABLED != 0 {
			return true, sid, nil
		}
	}
	return false, sid, nil
}

// listPipes returns the names of the pipes that this process can see. The directory
// of pipes knows only the way of looking that FindFirstFile takes, which is not
// package os's.
func listPipes() (names []string, err error) {
	pattern, err := windows.UTF16PtrFromString(`\\.\pipe\*`)
	if err != nil {
		return nil, err
	}
	var found windows.Win32finddata
	search, err := windows.FindFirstFile(pattern, &found)
	if err != nil {
		return nil, fmt.Errorf("listing pipes: %w", err)
	}
	defer func() { _ = windows.FindClose(search) }()
	for err == nil {
		names = append(names, windows.UTF16ToString(found.FileName[:]))
		err = windows.FindNextFile(search, &found)
	}
	if !errors.Is(err, windows.ERROR_NO_MORE_FILES) {
		return names, fmt.Errorf("listing pipes: %w", err)
	}
	return names, nil
}
