//go:build unix

package tartree

import (
	"io/fs"
	"syscall"
)

// noWait opens a pipe without waiting for its writer, and a terminal without becoming its
// foreground process.
const noWait = syscall.O_NONBLOCK | syscall.O_NOCTTY

func owner(info fs.FileInfo) (uid, gid int) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), int(stat.Gid)
	}
	return 0, 0
}
