package host

import (
	"context"
	"fmt"
	"strconv"

	"github.com/holdfast-csi/holdfast/internal/linux/pidfd"
)

// startOfProcess is the start time of a process, in clock ticks since the boot.
// Together with the process ID and the boot it identifies the process.
func startOfProcess(pid int32) (uint64, error) {
	stat, err := pidfd.StatOf(strconv.Itoa(int(pid)))
	if err != nil {
		return 0, fmt.Errorf("read the process that asks for the hold: %w", err)
	}
	return stat.Start, nil
}

func hasEnded(pid int32, start uint64) bool { return pidfd.HasEnded(int(pid), start) }

// awaitProcess returns nil when the process has ended, or the context's error.
func awaitProcess(ctx context.Context, pid int32, start uint64) error {
	process, err := pidfd.Find(int(pid), start)
	if process == nil {
		return err
	}
	defer func() { _ = process.Close() }()
	return process.Wait(ctx)
}
