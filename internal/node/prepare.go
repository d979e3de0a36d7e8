package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
	"github.com/holdfast-csi/holdfast/internal/step"
)

// action is the step that a device needs before it can be mounted.
type action int

const (
	actionUse action = iota
	actionFormat
	actionCheck
	actionRepair // of a growth that was interrupted
)

// decide is the whole policy of formatting. desired is the request's filesystem
// or "", fallback the one to make when the request leaves it open.
func decide(content blockdev.Content, mark backend.FormatMark, desired, fallback string) (action, string, error) {
	chosen := desired
	if chosen == "" {
		chosen = fallback
	}
	if mark.FSType != "" && !mark.Done {
		// The device was blank when mkfs started, and mkfs did not end: mkfs wrote its
		// content.
		return actionFormat, chosen, nil
	}
	if mark.Resizing && interruptedGrowth(content, desired) {
		return actionRepair, content.Type, nil
	}
	switch content.Kind {
	case blockdev.Blank:
		if mark.Done {
			return 0, "", fmt.Errorf("%w: the device is blank, but a filesystem %s was made on it before; it is not "+
				"formatted again", backend.ErrDataLoss, mark.FSType)
		}
		return actionFormat, chosen, nil
	case blockdev.Filesystem:
		return decideFilesystem(content, desired)
	case blockdev.Corrupt:
		return 0, "", fmt.Errorf("%w: a damaged %s: %s; it is not formatted: repair it, or restore the volume from a "+
			"snapshot", backend.ErrDataLoss, content.Type, content.Detail)
	}
	return 0, "", fmt.Errorf("%w: the device contains %s: %s; it is not formatted: if that can go, wipe it (wipefs -a) "+
		"and try again", backend.ErrPrecondition, content.Kind, content.Detail)
}

// interruptedGrowth reports whether a killed resize2fs can have left content.
func interruptedGrowth(content blockdev.Content, desired string) bool {
	return (content.Kind == blockdev.Filesystem || content.Kind == blockdev.Corrupt) &&
		fs.GrowsOffline(content.Type) && (desired == "" || desired == content.Type)
}

func decideFilesystem(content blockdev.Content, desired string) (action, string, error) {
	if desired != "" && content.Type != desired {
		return 0, "", fmt.Errorf("%w: the device contains a filesystem %s; %s was asked for",
			backend.ErrPrecondition, content.Type, desired)
	}
	if content.HasErrors || content.NeedsCheck {
		return actionCheck, content.Type, nil
	}
	return actionUse, content.Type, nil
}

// preparation is the common part of stage and inline publish: a device that is being
// prepared for a mount.
type preparation struct {
	volumeID string
	device   *backend.Device
	desired  string
	flags    mount.Flags
	point    string // prefix of failpoints, such as "node/stage"
}

// mountDetached brings the device to a mountable state and mounts it, not attached
// to a path yet, with the filesystem grown to the size of the device.
func (e *Engine) mountDetached(ctx context.Context, p preparation) (*mount.Tree, error) {
	content, err := e.prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	if content, err = e.fillOffline(ctx, p, content); err != nil {
		return nil, err
	}
	tree, err := e.mount(ctx, p, content.Type)
	if err != nil {
		return nil, err
	}
	if err := e.fill(ctx, tree, content, p); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return tree, nil
}

// mount mounts the device, not attached to a path.
func (e *Engine) mount(ctx context.Context, p preparation, fsType string) (tree *mount.Tree, err error) {
	_, end := step.Begin(ctx, "mount")
	defer func() { end(err) }()
	return mount.Mount(mount.Filesystem{
		Type: fsType, Device: p.device.Path, Number: p.device.Number,
		Defaults: defaultOptions(fsType, p.device, p.flags), Flags: p.flags,
	})
}

// openDevice makes the device of a volume present.
func (e *Engine) openDevice(ctx context.Context, request backend.DeviceRequest) (device *backend.Device, err error) {
	ctx, end := step.Begin(ctx, "device")
	defer func() { end(err) }()
	return e.backend.OpenDevice(ctx, request)
}

// defaultOptions are those of the driver, unless the request says otherwise. A
// clone of an xfs has its original's UUID and may be mounted next to it. An ext
// filesystem's superblock sets the reaction to an error, which may be a panic of the
// machine: a pod that had the volume as raw block may have written it, so the option is
// always given. Freed blocks are discarded only if the backend supports that; btrfs
// would discard them by default since Linux 6.2.
func defaultOptions(fsType string, device *backend.Device, flags mount.Flags) []mount.Option {
	asked := func(keys ...string) bool {
		return slices.ContainsFunc(flags.Options, func(o mount.Option) bool { return slices.Contains(keys, o.Key) })
	}
	var options []mount.Option
	switch {
	case fsType == fs.XFS:
		options = append(options, mount.Option{Key: "nouuid"})
	case (fsType == fs.Ext4 || fsType == fs.Ext3) && !asked("errors"):
		options = append(options, mount.Option{Key: "errors", Value: "remount-ro", HasValue: true})
	}
	if asked("discard", "nodiscard") {
		return options
	}
	switch {
	case device.Discard && fsType != fs.Btrfs:
		options = append(options, mount.Option{Key: "discard"})
	case !device.Discard && fsType == fs.Btrfs:
		options = append(options, mount.Option{Key: "nodiscard"})
	}
	return options
}

// prepare returns the filesystem that is on the device in the end.
func (e *Engine) prepare(ctx context.Context, p preparation) (blockdev.Content, error) {
	mark, err := e.formatMark(ctx, p.volumeID)
	if err != nil {
		return blockdev.Content{}, err
	}
	content, err := e.probeDevice(ctx, p)
	if err != nil {
		return blockdev.Content{}, err
	}
	act, fsType, err := e.decide(content, mark, p.desired)
	if act == actionCheck || act == actionRepair || errors.Is(err, backend.ErrDataLoss) {
		if content, err = e.probeAlone(ctx, p); err != nil {
			return content, err
		}
		act, fsType, err = e.decide(content, mark, p.desired)
	}
	if err != nil || act == actionUse {
		return content, wrapDevice(p, err)
	}
	if err := e.refuseUsed(p); err != nil {
		return content, err
	}
	switch act {
	case actionCheck:
		return e.check(ctx, p, content)
	case actionRepair:
		return e.repairGrowth(ctx, p, content)
	}
	return e.format(ctx, p, fsType, mark)
}

// decide adds the filesystems that this engine supports to the policy.
func (e *Engine) decide(content blockdev.Content, mark backend.FormatMark, desired string) (action, string, error) {
	act, fsType, err := decide(content, mark, desired, e.filesystem[0])
	if err == nil && act != actionFormat {
		err = e.supportedType(content.Type)
	}
	return act, fsType, err
}

func wrapDevice(p preparation, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("device %s: %w", p.device.Path, err)
}

// claim opens the device exclusively (open(2), O_EXCL of a block device), as mounts and
// the programs for filesystems do. The error says who uses it: ErrInUse names the mounts
// of the volume; ErrBusy is for another user, such as a filesystem program that outlives
// the process that started it for an instant, a mount that is being torn down, or one in
// another mount namespace. A claim costs the same with any number of mounts on the
// machine, unlike the mount table.
func (e *Engine) claim(p preparation) (*os.File, error) {
	file, err := openExclusive(p.device.Path)
	return file, e.explainClaim(p, err)
}

func openExclusive(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|os.O_EXCL, 0) }

// explainClaim returns the error of a claim that failed with err.
func (e *Engine) explainClaim(p preparation, err error) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("device %s: %w: %w", p.device.Path, backend.ErrUnavailable, err)
	}
	mounts, err := mountsOf([]backend.Device{*p.device})
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("device %s: %w: it is mounted at %s and cannot be checked or formatted",
			p.device.Path, backend.ErrInUse, several(mounts))
	}
	return fmt.Errorf("device %s: %w: another process, or a mount that this one cannot see, uses it exclusively",
		p.device.Path, backend.ErrBusy)
}

// refuseUsed keeps mkfs and fsck away from a device that is in use, in addition to
// their own checks.
func (e *Engine) refuseUsed(p preparation) error {
	// The first open may wait for the device. While it is open, another one does not.
	file, err := os.Open(p.device.Path)
	if err == nil {
		defer func() { _ = file.Close() }()
		err = tryClaim(p.device.Path)
	}
	return e.explainClaim(p, err)
}

// tryClaim claims a device for an instant. No program starts meanwhile: its process would
// keep the claim until it executes the program.
func tryClaim(path string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	file, err := openExclusive(path)
	if err != nil {
		return err
	}
	return file.Close()
}

// format makes the filesystem, once, between the two marks.
func (e *Engine) format(
	ctx context.Context, p preparation, fsType string, mark backend.FormatMark,
) (content blockdev.Content, err error) {
	ctx, end := step.Begin(ctx, "format")
	defer func() { end(err) }()
	if p.device.ReadOnly {
		return blockdev.Content{}, fmt.Errorf("device %s: %w: it has no filesystem and is read-only",
			p.device.Path, backend.ErrPrecondition)
	}
	if intent := (backend.FormatMark{FSType: fsType}); mark != intent {
		if err := e.setFormatMark(ctx, p.volumeID, intent); err != nil {
			return blockdev.Content{}, err
		}
	}
	if err := e.points.Hit(p.point + "/marked"); err != nil {
		return blockdev.Content{}, err
	}
	if err := fs.Make(ctx, e.runner, fsType, *p.device, ""); err != nil {
		return blockdev.Content{}, err
	}
	if err := e.points.Hit(p.point + "/formatted"); err != nil {
		return blockdev.Content{}, err
	}
	if content, err = e.probeDevice(ctx, p); err != nil {
		return content, err
	}
	if content.Kind != blockdev.Filesystem || content.Type != fsType {
		return content, fmt.Errorf("device %s: mkfs of %s succeeded, but the device contains %s %s %s",
			p.device.Path, fsType, content.Kind, content.Type, content.Detail)
	}
	if err := e.setFormatMark(ctx, p.volumeID, backend.FormatMark{FSType: fsType, Done: true}); err != nil {
		return content, err
	}
	return content, e.points.Hit(p.point + "/recorded")
}

// check repairs, and refuses a filesystem that stays damaged.
func (e *Engine) check(ctx context.Context, p preparation, before blockdev.Content) (after blockdev.Content, err error) {
	ctx, end := step.Begin(ctx, "check")
	defer func() { end(err) }()
	if p.device.ReadOnly {
		return before, errReadOnlyRepair(p, before.Type)
	}
	e.log.Warn("checking a filesystem", "volume", p.volumeID, "device", p.device.Path, "type", before.Type,
		"errors", before.HasErrors)
	if err := fs.Check(ctx, e.runner, before.Type, p.device.Path); err != nil {
		return before, err
	}
	if after, err = e.probeRepaired(ctx, p, before.Type); err != nil {
		return after, err
	}
	return after, e.points.Hit(p.point + "/checked")
}

func errReadOnlyRepair(p preparation, fsType string) error {
	return fmt.Errorf("device %s: %w: its %s must be checked and the device is read-only",
		p.device.Path, backend.ErrPrecondition, fsType)
}

// probeRepaired reads the device after a check. ErrPrecondition if the
// filesystem is still marked as damaged.
func (e *Engine) probeRepaired(ctx context.Context, p preparation, fsType string) (blockdev.Content, error) {
	after, err := e.probeDevice(ctx, p)
	if err != nil {
		return after, err
	}
	if after.Kind != blockdev.Filesystem || after.HasErrors || after.NeedsCheck {
		return after, fmt.Errorf("device %s: %w: its %s is still marked as damaged after a check; save what you need, "+
			"then repair it by hand",
			p.device.Path, backend.ErrPrecondition, fsType)
	}
	return after, nil
}

// probeDevice reads the device's content. The node is opened again, so it is
// compared with the number that the backend verified.
func (e *Engine) probeDevice(ctx context.Context, p preparation) (blockdev.Content, error) {
	file, err := os.Open(p.device.Path)
	if err != nil {
		return blockdev.Content{}, fmt.Errorf("device %s: %w: %w", p.device.Path, backend.ErrUnavailable, err)
	}
	return e.probeFile(ctx, p, file)
}

// probeAlone is probeDevice with the device claimed while it is read: another user may
// write to it. The claim is not for every probe: a program between fork and exec would
// keep it, and the mount that follows would fail.
func (e *Engine) probeAlone(ctx context.Context, p preparation) (blockdev.Content, error) {
	file, err := e.claim(p)
	if err != nil {
		return blockdev.Content{}, err
	}
	return e.probeFile(ctx, p, file)
}

// probeFile closes the file.
func (e *Engine) probeFile(ctx context.Context, p preparation, file *os.File) (content blockdev.Content, err error) {
	ctx, end := step.Begin(ctx, "probe")
	defer func() { end(err) }()
	defer func() { _ = file.Close() }()
	number, err := blockdev.Number(file)
	if err != nil {
		return blockdev.Content{}, err
	}
	if number != p.device.Number {
		return blockdev.Content{}, fmt.Errorf("device %s: it is not the volume's device any more", p.device.Path)
	}
	content, err = blockdev.Probe(ctx, file, p.device.Size, e.written(ctx, p.volumeID, file))
	if err != nil && ctx.Err() == nil {
		return content, fmt.Errorf("device %s: %w: %w; it is neither formatted nor mounted until it can be read",
			p.device.Path, backend.ErrUnavailable, err)
	}
	return content, err
}

// written is nil if the backend does not know the written extents.
func (e *Engine) written(ctx context.Context, volumeID string, device *os.File) blockdev.Written {
	lister, ok := e.backend.(backend.WrittenLister)
	if !ok {
		return nil
	}
	return func(visit func(offset, length int64) error) error {
		if err := device.Sync(); err != nil {
			return fmt.Errorf("write dirty pages: %w", err)
		}
		return lister.WrittenRanges(ctx, volumeID, visit)
	}
}

// formatMark is the zero mark when the backend keeps none.
func (e *Engine) formatMark(ctx context.Context, volumeID string) (backend.FormatMark, error) {
	recorder, ok := e.backend.(backend.FormatRecorder)
	if !ok {
		return backend.FormatMark{}, nil
	}
	mark, err := recorder.FormatMark(ctx, volumeID)
	if err != nil {
		return mark, fmt.Errorf("read whether it was formatted: %w", err)
	}
	return mark, nil
}

func (e *Engine) setFormatMark(ctx context.Context, volumeID string, mark backend.FormatMark) error {
	recorder, ok := e.backend.(backend.FormatRecorder)
	if !ok {
		return nil
	}
	if err := recorder.SetFormatMark(ctx, volumeID, mark); err != nil {
		return fmt.Errorf("record that it is being formatted: %w", err)
	}
	return nil
}
