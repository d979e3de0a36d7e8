package pluginwatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/windows"
)

// Identity distinguishes a file from another one that later has the same path. Times do
// not: the clock is coarse, and two files may have one. NTFS counts the uses of a file
// index in the index itself.
type Identity struct {
	volume  uint32
	index   uint64
	created int64 // nanoseconds since 1970
}

// Identify reports whether a path is known to be a socket, and which file it is.
func Identify(path string) (Identity, bool, error) {
	identity, what, err := classify(path)
	return identity, what == isSocket, err
}

func classify(path string) (Identity, kind, error) {
	info, err := statOf(os.Stat, os.Lstat, path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, notSocket, nil
	}
	if err != nil {
		return Identity{}, notSocket, err
	}
	what := classifyMode(info.Mode())
	if what == notSocket {
		return Identity{}, notSocket, nil
	}
	identity, err := identityOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, notSocket, nil
	}
	return identity, what, err
}

// identityOf opens the file itself: a socket is a reparse point that cannot be
// opened otherwise.
func identityOf(path string) (identity Identity, err error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return identity, err
	}
	handle, err := windows.CreateFile(name, 0, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil,
		windows.OPEN_EXISTING, windows.FILE_FLAG_OPEN_REPARSE_POINT|windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return identity, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, windows.CloseHandle(handle)) }()
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(handle, &info); err != nil {
		return identity, fmt.Errorf("read the identity of %s: %w", path, err)
	}
	return Identity{
		volume: info.VolumeSerialNumber, index: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow),
		created: info.CreationTime.Nanoseconds(),
	}, nil
}

func systemSpelling() spelling { return ofWindows() }

// dialUnix connects and hangs up.
func dialUnix(ctx context.Context, path string) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return connection.Close()
}
