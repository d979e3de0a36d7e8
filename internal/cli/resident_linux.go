package cli

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// releaseFilePages unmaps the pages of files that are mapped for reading: most of
// the program's code is for the start and for other commands, and a starting host
// reads its whole store. The kernel maps a page again, from the page cache, when it
// is used (madvise(2), MADV_DONTNEED).
func releaseFilePages() error {
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer func() { _ = maps.Close() }() // read only
	var area []byte
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"):
			area = readOnlyFile(fields)
		case area != nil && fields[0] == "Anonymous:" && fields[1] == "0":
			// No page was written, for example by relocations: the file has the content.
			if err := unix.Madvise(area, unix.MADV_DONTNEED); err != nil {
				return err
			}
		}
	}
	return nil
}

// readOnlyFile returns the area that the first line of an entry of /proc/PID/smaps
// (proc_pid_smaps(5)) describes; nil if it is not of a file, or can be written.
func readOnlyFile(fields []string) []byte {
	if len(fields) < 6 || !strings.HasPrefix(fields[5], "/") || fields[1][0] != 'r' || fields[1][1] != '-' {
		return nil
	}
	from, to, _ := strings.Cut(fields[0], "-")
	start, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return nil
	}
	end, err := strconv.ParseUint(to, 16, 64)
	if err != nil || end <= start {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), start)), end-start)
}
