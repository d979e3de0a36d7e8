//go:build !unix

package tartree

import "io/fs"

const noWait = 0

func owner(fs.FileInfo) (uid, gid int) { return 0, 0 }
