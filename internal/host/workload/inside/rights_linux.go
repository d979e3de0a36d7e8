package inside

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// assume gives this thread, which the caller has locked, the rights that the command of a
// container has: its user, groups and capabilities. The calls are the system's own, because
// those of package syscall change all threads, or, with cgo, fail for one.
func assume(container Container) error {
	if err := restrict(container); err != nil {
		return err
	}
	allowed, err := boundingSet()
	if err != nil {
		return err
	}
	groups := append([]uint32{}, container.Groups...)
	if _, _, number := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); number != 0 {
		return fmt.Errorf("set the container's groups: %w", number)
	}
	uid, gid := uintptr(container.UID), uintptr(container.GID)
	if _, _, number := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); number != 0 {
		return fmt.Errorf("set the container's group %d: %w", container.GID, number)
	}
	if _, _, number := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); number != 0 {
		return fmt.Errorf("set the container's user %d: %w", container.UID, number)
	}
	// As execve(2) does it: root gets what the bounding set allows, another user nothing
	// (capabilities(7), "Transformation of capabilities during execve()").
	if container.UID != 0 {
		allowed = 0
	}
	return setCapabilities(allowed)
}

// boundingSet has a bit for each capability that this thread could get.
func boundingSet() (set uint64, err error) {
	for number := range capabilities() {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(number), 0, 0, 0)
		if err == unix.EINVAL { // an older kernel without it
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read the bounding set: %w", err)
		}
		set |= uint64(has) << number //nolint:gosec // 0 or 1
	}
	return set, nil
}

// setCapabilities sets the effective and permitted capabilities of this thread, and clears
// the inheritable ones.
func setCapabilities(set uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	low, high := uint32(set), uint32(set>>32) //nolint:gosec // the two halves
	data := [2]unix.CapUserData{{Effective: low, Permitted: low}, {Effective: high, Permitted: high}}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("set the container's capabilities: %w", err)
	}
	return nil
}
