package lab

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ownProgram returns this program as a file that has no path (memfd_create(2)): the runtime
// reads the path of its program.
func ownProgram() (*os.File, error) {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()
	descriptor, err := unix.MemfdCreate("simulation", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	to := os.NewFile(uintptr(descriptor), "simulation")
	if _, err := io.Copy(to, from); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	// A file that is open for writing cannot be executed (execve(2), ETXTBSY).
	defer func() { _ = to.Close() }()
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", descriptor))
}
