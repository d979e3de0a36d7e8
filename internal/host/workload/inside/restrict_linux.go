package inside

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// capabilities are the names of capabilities(7), by number.
func capabilities() []string {
	return []string{
		"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
		"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
		"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
		"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
		"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
		"CHECKPOINT_RESTORE",
	}
}

// isDefault reports whether a container has a capability by default: those of container
// runtimes, without MKNOD, because no device cgroup would bound it. Without SYS_ADMIN
// nothing in the view can be unmounted, and without DAC_READ_SEARCH no file is opened
// past it (open_by_handle_at(2)).
func isDefault(capability string) bool {
	return slices.Contains([]string{
		"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "NET_RAW",
		"SYS_CHROOT", "AUDIT_WRITE", "SETFCAP",
	}, capability)
}

// restrict drops the privileges of this thread that the command must not have. The
// bounding set limits what an executed program gets, and leaves this thread
// the right to change the user before.
func restrict(container Container) error {
	if container.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("forbid new privileges: %w", err)
		}
	}
	for number, name := range capabilities() {
		drop := container.DropAll || container.confined() && !isDefault(name) ||
			slices.ContainsFunc(container.DropCaps, func(c string) bool { return strings.EqualFold(c, name) })
		keep := slices.ContainsFunc(container.KeepCaps,
			func(c string) bool { return strings.EqualFold(c, name) || strings.EqualFold(c, "ALL") })
		if !drop || keep {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0); err != nil &&
			err != unix.EINVAL { // EINVAL: an older kernel without it
			return fmt.Errorf("drop capability %s: %w", name, err)
		}
	}
	return nil
}
