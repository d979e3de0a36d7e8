package store

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// holder names the process that has a file locked, for an error message; ""
// when it cannot be told (proc_locks(5)).
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
	wanted := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 2345 08:01:1234 0 EOF
		fields := strings.Fields(scanner.Text())
		if len(fields) > 5 && fields[1] == "FLOCK" && fields[5] == wanted {
			return " (process " + fields[4] + ")"
		}
	}
	return ""
}

// unlock gives the lock back that closing would not: the mapping that bbolt
// leaves behind holds it.
func unlock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_UN) }
