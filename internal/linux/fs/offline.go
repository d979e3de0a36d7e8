package fs

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// Growth of an ext4 that is not mounted, for a process that CanGrowMounted
// denies: VerifyOffline, then GrowOffline, and RepairOffline after a GrowOffline
// that did not end. The other filesystems grow only while mounted, for which
// they need no capability that mounting does not.

// VerifyOffline checks the whole filesystem, which resize2fs(8) demands, and makes safe
// repairs. ErrPrecondition when it finds more damage.
func VerifyOffline(ctx context.Context, runner command.Runner, fsType, device string) error {
	return runOffline(ctx, runner, fsType, device, command.Command{Name: "e2fsck", Args: []string{"-f", "-p", device}}, 1)
}

// GrowOffline grows a verified filesystem to the size of its device. If it is
// killed, the filesystem is inconsistent and its superblock's checksum may be
// wrong, since resize2fs writes the fields of the superblock one by one.
func GrowOffline(ctx context.Context, runner command.Runner, fsType, device string) error {
	return runOffline(ctx, runner, fsType, device, command.Command{Name: "resize2fs", Args: []string{device}}, 0)
}

// RepairOffline repairs a filesystem after a GrowOffline that was killed. It
// answers every question of e2fsck with yes, so it must not run on damage of
// another source.
func RepairOffline(ctx context.Context, runner command.Runner, fsType, device string) error {
	return runOffline(ctx, runner, fsType, device, command.Command{Name: "e2fsck", Args: []string{"-f", "-y", device}}, 1)
}

// runOffline runs c, whose exit codes up to success mean success.
func runOffline(
	ctx context.Context, runner command.Runner, fsType, device string, c command.Command, success int,
) error {
	if !isExt(fsType) {
		return fmt.Errorf("grow %s on %s: %w while it is not mounted", fsType, device, backend.ErrUnsupported)
	}
	task := progress.Begin(ctx, "growing "+fsType+" with "+c.Name, 0)
	defer task.End()
	result, err := runner.Run(ctx, c)
	if err != nil {
		return wrapRun(fmt.Sprintf("grow %s on %s", fsType, device), err)
	}
	if result.ExitCode > success {
		return unrepaired(fsType, device, fmt.Sprintf("%s ended with code %d: %s", c.Name, result.ExitCode, said(result)))
	}
	return nil
}
