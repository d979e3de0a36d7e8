package store

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// holder names the process that has a file locked, for an error message; "" if it
// is not known (proc_locks(5)).
func holder(path string) string {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return ""
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return ""
	}
	defer func() { _ = locks.Close() }() // read only
	desired := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 2345 08:01:1234 0 EOF
		fields := strings.Fields(scanner.Text())
		if len(fields) > 5 && fields[1] == "FLOCK" && fields[5] == desired {
			return " (process " + fields[4] + ")"
		}
	}
	return ""
}

// lock locks bbolt's files, and waits for the lock as bbolt does.
func lock(file *os.File, shared bool) error {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockTimeout / 10) {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(deadline) {
			return bolterrors.ErrTimeout
		}
	}
}

// unlock releases the lock, which closing would not: the mapping that bbolt leaves
// behind keeps the open file description.
func unlock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_UN) }
