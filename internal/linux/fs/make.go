package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// Supported lists the filesystems of this package.
func Supported() []string { return []string{Ext4, XFS, Btrfs, Ext3} }

// Make makes a filesystem on a device that the caller knows to be blank or to
// contain nothing but an interrupted Make: its content is overwritten. It
// runs exactly one program. label may be empty.
func Make(ctx context.Context, runner command.Runner, fsType string, device backend.Device, label string) error {
	c, err := makeCommand(fsType, device, label)
	if err != nil {
		return err
	}
	task := progress.Begin(ctx, "formatting "+fsType, 0)
	defer task.End()
	result, err := runner.Run(ctx, c)
	if err != nil {
		return wrapRun(fmt.Sprintf("make %s on %s", fsType, device.Path), err)
	}
	if result.ExitCode != 0 {
		return fmt.Errorf("make %s on %s: %w: %s ended with code %d: %s", fsType, device.Path,
			backend.ErrPrecondition, c.Name, result.ExitCode, said(result))
	}
	return nil
}

// Check makes the repairs that lose no data. ErrPrecondition,
// with the command for an administrator, when it cannot. The device must not
// be mounted.
func Check(ctx context.Context, runner command.Runner, fsType, device string) error {
	var c command.Command
	switch fsType {
	case Ext4, Ext3, "ext2":
		c = command.Command{Name: "e2fsck", Args: []string{"-p", device}}
	case XFS:
		c = command.Command{Name: "xfs_repair", Args: []string{device}}
	default: // btrfs check --repair may do harm; btrfs-check(8) warns of it
		return unrepaired(fsType, device, "it recorded an error")
	}
	task := progress.Begin(ctx, "checking "+fsType, 0)
	defer task.End()
	result, err := runner.Run(ctx, c)
	if err != nil {
		return wrapRun(fmt.Sprintf("check %s on %s", fsType, device), err)
	}
	// e2fsck(8): 1 is "errors corrected"; xfs_repair(8) ends with 0 when it did.
	if result.ExitCode == 0 || (c.Name == "e2fsck" && result.ExitCode == 1) {
		return nil
	}
	return unrepaired(fsType, device, fmt.Sprintf("%s ended with code %d: %s", c.Name, result.ExitCode, said(result)))
}

func unrepaired(fsType, device, reason string) error {
	commands := map[string]string{Btrfs: "btrfs check", XFS: "xfs_repair"}
	repair := commands[fsType]
	if repair == "" {
		repair = "e2fsck -f"
	}
	return fmt.Errorf("%w: the %s on %s has errors that are not repaired automatically (%s); save what you need, then "+
		"run on this machine: %s %s",
		backend.ErrPrecondition, fsType, device, reason, repair, device)
}

// wrapRun makes a missing program the machine's fault and returns the error of an ended
// context unchanged.
func wrapRun(step string, err error) error {
	if errors.Is(err, command.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w: %w", step, backend.ErrPrecondition, err)
	}
	return fmt.Errorf("%s: %w", step, err)
}

// said is a program's output on one line, without its usage text.
func said(r command.Result) string {
	output := bytes.TrimSpace(r.Stderr)
	if len(output) == 0 {
		output = bytes.TrimSpace(r.Stdout)
	}
	const lines, most = 4, 400
	parts := strings.SplitN(string(output), "\n", lines+1)
	text := strings.Join(parts[:min(lines, len(parts))], "; ")
	text, _, _ = strings.Cut(text, "; Usage")
	return text[:min(most, len(text))]
}
