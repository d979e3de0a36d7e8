package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// smb is api.SMB.
//
// A global mapping belongs to the whole machine: a caller that reaches a share through
// it has the rights of the mapping's user. So all mounts of a share have one user, and
// the mapping is removed with the last mount. Windows reports neither the user nor the
// mounts; a record in the state directory has them (see smbRecord), written before the
// mapping is made.
//
//   - A mapping without a record was made by another program, for an unknown user.
//     While it works, Mount does not use it (ErrPrecondition): a second user would get
//     the rights of the first.
//   - Another password of the same user may be a new one. It replaces a mapping that has
//     no other mount or that is broken. Otherwise it is ErrPrecondition, since a wrong
//     password must not disconnect the other mounts.
//   - A mount whose link no longer exists does not use the mapping any more. A driver of
//     the group API removes its link by Rmdir, and calls RemoveSmbGlobalMapping after
//     its last one: that removes the mapping, unless another link leads to the share.
type smb struct{ *Host }

const (
	// mappingLimit bounds the time in which a mapping must connect.
	mappingLimit = 10 * time.Second

	mappingOK         = 0
	mappingConnecting = 4
	mappingReconnects = 5
)

func shareKey(share string) string { return "share " + share }

// Mount makes the mapping unless it exists, then the link.
func (s smb) Mount(ctx context.Context, mount api.SMBMount) error {
	at, err := parseRemote(mount.Remote)
	if err != nil {
		return err
	}
	local, err := s.localPath(mount.Local)
	if err != nil {
		return err
	}
	if err := checkSMBUser(mount); err != nil {
		return err
	}
	keys := []string{shareKey(at.root())}
	if mount.Local != "" {
		keys = append(keys, pathKey(local))
	}
	return run(ctx, s.tasks, keys, func(ctx context.Context) error {
		return during(s.mount(ctx, at, local, mount), "mount the share %s", at)
	})
}

// localPath checks the path of a link; "" is a mount without a link.
func (s smb) localPath(text string) (paths.Path, error) {
	if text == "" {
		return paths.Path{}, nil
	}
	return s.rules.Target("local path", text)
}

func holderOf(local paths.Path) string {
	if local == (paths.Path{}) {
		return ""
	}
	return local.String()
}

func (s smb) mount(ctx context.Context, at remote, local paths.Path, mount api.SMBMount) error {
	holder := holderOf(local)
	if holder != "" {
		if err := s.mayLink(ctx, local, at.linkTarget()); err != nil {
			return err
		}
	}
	record, before, err := s.mapped(ctx, at, holder, mount)
	if err != nil {
		return err
	}
	err = s.reach(at)
	if err == nil && holder != "" {
		err = s.makeLink(ctx, local, at.linkTarget())
	}
	if err == nil || slices.Contains(before, holder) {
		return err
	}
	// This call added the holder, so it removes it: a mapping without a mount would stay.
	record.drop(holder)
	return errors.Join(err, s.release(ctx, record))
}

// mapped makes sure that the share is mapped for the user and that the record has the
// holder. before are the holders from before the call.
func (s smb) mapped(
	ctx context.Context, at remote, holder string, mount api.SMBMount,
) (record smbRecord, before []string, err error) {
	name := smbRecordName(at.root())
	known, err := s.records.read(name, &record)
	if err != nil {
		return record, nil, err
	}
	if known {
		record.Holders = s.inUse(ctx, record)
	}
	before = slices.Clone(record.Holders)
	mapping, there, err := s.mapping(ctx, at.root())
	if err != nil {
		return record, before, err
	}
	works := there && mapping.Status == mappingOK && s.answers(at)
	usable, err := s.mayUse(record, known, works, there, holder, mount)
	if err != nil {
		return record, before, err
	}
	if usable {
		record.add(holder)
		return record, before, s.records.write(name, record)
	}
	if there {
		if err := s.unmap(ctx, at.root()); err != nil {
			return record, before, err
		}
	}
	if record, err = s.proofs.newSMBRecord(at.root(), mount, s.options.RequirePrivacy, before); err != nil {
		return record, before, err
	}
	record.add(holder)
	return record, before, s.makeMapping(ctx, record, before, mount)
}

// answers reports whether a mapped share answers. A share that denies this user its top
// directory has accepted the user's credentials.
func (s smb) answers(at remote) bool {
	err := s.reach(remote{at.server, at.share, ""})
	return err == nil || errors.Is(err, backend.ErrDenied)
}

// mayUse reports whether to use an existing mapping (true) or to replace it (false).
func (s smb) mayUse(record smbRecord, known, works, there bool, holder string, mount api.SMBMount) (bool, error) {
	if !known {
		if works {
			return false, fmt.Errorf("%w: another program has mapped it, for a user that Windows does not report; "+
				"if it is not in use, remove it (Remove-SmbGlobalMapping), and repeat the call", backend.ErrPrecondition)
		}
		return false, nil
	}
	others := record.others(holder)
	if !record.sameUser(mount) {
		if others {
			return false, fmt.Errorf("%w: it is mapped for another user, and other mounts use it: a machine has one user for a "+
				"share; use the same user, or unmount the others first: %w",
				backend.ErrPrecondition, win32.ErrorSessionCredentialConflict)
		}
		return false, nil
	}
	proven, err := s.proofs.proven(mount.Password, record)
	if err != nil {
		return false, err
	}
	if !proven && others && works {
		return false, fmt.Errorf("%w: it is mapped with another password of the same user, and other mounts use it; use the "+
			"same password, or unmount the others first: %w",
			backend.ErrPrecondition, win32.ErrorSessionCredentialConflict)
	}
	private := record.Privacy || !s.options.RequirePrivacy
	return proven && works && there && record.Made && private, nil
}

// mapping finds the mapping of a share.
func (s smb) mapping(ctx context.Context, share string) (win32.SMBMapping, bool, error) {
	all, err := s.machine.SMB.Mappings(ctx)
	if err != nil {
		return win32.SMBMapping{}, false, failed(err, "list SMB mappings")
	}
	i := slices.IndexFunc(all, func(m win32.SMBMapping) bool { return strings.EqualFold(strings.TrimSuffix(m.Remote, `\`), share) })
	if i < 0 {
		return win32.SMBMapping{}, false, nil
	}
	return all[i], true, nil
}

// makeMapping writes the record, makes the mapping, and waits until it works. If that
// fails, the record keeps the earlier holders, for which the next mount makes the
// mapping; without earlier holders nothing remains.
func (s smb) makeMapping(ctx context.Context, record smbRecord, before []string, mount api.SMBMount) error {
	name := smbRecordName(record.Share)
	if err := s.records.write(name, record); err != nil {
		return err
	}
	err := s.machine.SMB.Create(ctx, win32.SMBMappingRequest{
		Remote: record.Share, Username: mount.Username, Password: mount.Password, RequirePrivacy: s.options.RequirePrivacy,
	})
	if err != nil {
		err = s.explain(err)
	} else {
		err = s.isMapped(ctx, record.Share)
	}
	if err == nil {
		record.Made = true
		return s.records.write(name, record)
	}
	record.Holders = before
	return errors.Join(err, s.release(ctx, record))
}

// explain adds the meaning of the numbers that only the mapping of a share returns.
func (s smb) explain(err error) error {
	switch {
	case isErrno(err, win32.ErrorSessionCredentialConflict):
		return failedAs(backend.ErrPrecondition, err,
			"this machine is connected to the server as another user; use the same user for all its shares, or unmount the others first")
	case isErrno(err, win32.ErrorNetworkAccessDenied, win32.ErrorInvalidParameter) && s.options.RequirePrivacy:
		return failedAs(backend.ErrInvalid, err, "the server does not support encryption, which --require-privacy demands")
	}
	return failed(err, "MSFT_SmbGlobalMapping.Create")
}

// isMapped waits until the mapping is connected.
func (s smb) isMapped(ctx context.Context, share string) error {
	var mapping win32.SMBMapping
	finished, err := poll(ctx, mappingLimit, func() (_ bool, err error) {
		var there bool
		if mapping, there, err = s.mapping(ctx, share); err != nil {
			return false, err
		}
		if !there {
			return false, errors.New("MSFT_SmbGlobalMapping.Create answered success, but the mapping is not listed")
		}
		return mapping.Status != mappingConnecting && mapping.Status != mappingReconnects, nil
	})
	if err == nil && (!finished || mapping.Status != mappingOK) {
		err = fmt.Errorf("%w: the new mapping does not work: its status is %d", backend.ErrUnavailable, mapping.Status)
	}
	return err
}

// reach reads the attributes of a path on the share.
func (s smb) reach(at remote) error {
	_, err := s.machine.Files.Attributes(at.linkTarget())
	return failed(err, "inspect %s", at)
}

// Unmount removes the link, then the mapping if it has no holders any more.
func (s smb) Unmount(ctx context.Context, remotePath, localPath string) error {
	at, err := parseRemote(remotePath)
	if err != nil {
		return err
	}
	local, err := s.localPath(localPath)
	if err != nil {
		return err
	}
	keys := []string{shareKey(at.root())}
	if localPath != "" {
		keys = append(keys, pathKey(local))
	}
	return run(ctx, s.tasks, keys, func(ctx context.Context) error {
		return during(s.unmount(ctx, at, local), "unmount the share %s", at)
	})
}

func (s smb) unmount(ctx context.Context, at remote, local paths.Path) error {
	holder := holderOf(local)
	if holder != "" {
		if err := s.removeLink(ctx, local, at.linkTarget()); err != nil {
			return err
		}
	}
	record := smbRecord{Share: at.root()}
	known, err := s.records.read(smbRecordName(at.root()), &record)
	if err != nil {
		return err
	}
	if !known {
		return s.unmapForeign(ctx, at, holder)
	}
	record.Holders = s.inUse(ctx, record)
	record.drop(holder)
	return s.release(ctx, record)
}

// unmapForeign removes a mapping without a record, such as one of upstream's csi-proxy.
// A call with a link does not remove it: its link was not made by this proxy.
// RemoveSmbGlobalMapping, which has no link, removes the mapping itself, without force,
// so that Windows rejects it while files are open.
func (s smb) unmapForeign(ctx context.Context, at remote, holder string) error {
	_, there, err := s.mapping(ctx, at.root())
	if err != nil || !there || holder != "" {
		return err
	}
	err = s.machine.SMB.Remove(ctx, at.root(), false)
	if isErrno(err, win32.ErrorNotConnected, win32.ErrorWBEMNotFound) {
		return nil
	}
	return failed(err, "MSFT_SmbGlobalMapping.Remove")
}

// release writes the record with its remaining holders. Without holders it removes the
// mapping and then the record: in the other order, a crash would leave a mapping without
// a record.
func (s smb) release(ctx context.Context, record smbRecord) error {
	name := smbRecordName(record.Share)
	if len(record.Holders) > 0 {
		return s.records.write(name, record)
	}
	_, there, err := s.mapping(ctx, record.Share)
	if err != nil {
		return err
	}
	if there {
		if err := s.unmap(ctx, record.Share); err != nil {
			return err
		}
	}
	return s.records.remove(name)
}

// unmap removes a mapping by force, and reads that back.
func (s smb) unmap(ctx context.Context, share string) error {
	err := s.machine.SMB.Remove(ctx, share, true)
	if err != nil && !isErrno(err, win32.ErrorNotConnected, win32.ErrorWBEMNotFound) {
		return failed(err, "MSFT_SmbGlobalMapping.Remove")
	}
	_, there, err := s.mapping(ctx, share)
	if err == nil && there {
		err = errors.New("MSFT_SmbGlobalMapping.Remove answered success, but the mapping is still listed")
	}
	return err
}
