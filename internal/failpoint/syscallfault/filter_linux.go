package syscallfault

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// traced is a system call that the filter asks about.
type traced struct {
	name string
	path func(args [6]uint64) string
}

func ofDescriptor(args [6]uint64) string { return pathOf(args[0]) }
func ofName(args [6]uint64) string       { return pathAt(args[0], args[1]) }

var tracedCalls = map[uint32]traced{
	unix.SYS_OPENAT:          {"openat", ofName},
	unix.SYS_MKDIRAT:         {"mkdirat", ofName},
	unix.SYS_UNLINKAT:        {"unlinkat", ofName},
	unix.SYS_RENAMEAT:        {"renameat", ofName},
	unix.SYS_RENAMEAT2:       {"renameat2", ofName},
	unix.SYS_FSYNC:           {"fsync", ofDescriptor},
	unix.SYS_FDATASYNC:       {"fdatasync", ofDescriptor},
	unix.SYS_SYNCFS:          {"syncfs", ofDescriptor},
	unix.SYS_FTRUNCATE:       {"ftruncate", ofDescriptor},
	unix.SYS_FALLOCATE:       {"fallocate", ofDescriptor},
	unix.SYS_WRITE:           {"write", ofDescriptor},
	unix.SYS_PWRITE64:        {"pwrite64", ofDescriptor},
	unix.SYS_PREAD64:         {"pread64", ofDescriptor},
	unix.SYS_READ:            {"read", ofDescriptor},
	unix.SYS_COPY_FILE_RANGE: {"copy_file_range", ofDescriptor},
	unix.SYS_LSEEK:           {"lseek", ofDescriptor},
	unix.SYS_FLOCK:           {"flock", ofDescriptor},
	unix.SYS_FSTAT:           {"fstat", ofDescriptor},
	unix.SYS_FSTATFS:         {"fstatfs", ofDescriptor},
	unix.SYS_GETDENTS64:      {"getdents64", ofDescriptor},
	unix.SYS_IOCTL:           {"ioctl", ofDescriptor},
}

// The audit numbers of the architectures (linux/audit.h), by Go's names.
var architectures = map[string]uint32{"amd64": 0xc000003e, "arm64": 0xc00000b7}

// Offsets in struct seccomp_data (linux/seccomp.h).
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetThird        = 32 // low half of the third argument
)

// install puts the filter on the calling thread alone and returns the
// descriptor on which the kernel asks.
func install() (int, error) {
	architecture, ok := architectures[runtime.GOARCH]
	if !ok {
		return -1, fmt.Errorf("install a filter of system calls: the architecture %s is not known", runtime.GOARCH)
	}
	program := filter(architecture)
	linux := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("install a filter of system calls: %w", err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&linux)))
	if errno != 0 {
		return -1, fmt.Errorf("install a filter of system calls: %w", errno)
	}
	return int(fd), nil
}

func filter(architecture uint32) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	end := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	program := []unix.SockFilter{
		load(offsetArchitecture), equal(architecture, 1, 0), end(unix.SECCOMP_RET_ALLOW), load(offsetNumber),
	}
	// Go's scheduler reads and writes the 8 bytes of an eventfd between two
	// steps of a goroutine, when the test cannot run: these calls must not be trapped.
	for _, number := range []uint32{unix.SYS_READ, unix.SYS_WRITE} {
		program = append(program, equal(number, 0, 4), load(offsetThird), equal(8, 1, 0), end(unix.SECCOMP_RET_USER_NOTIF),
			end(unix.SECCOMP_RET_ALLOW))
	}
	for number := range tracedCalls {
		program = append(program, equal(number, 0, 1), end(unix.SECCOMP_RET_USER_NOTIF))
	}
	return append(program, end(unix.SECCOMP_RET_ALLOW))
}
