package compose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// defaultPort is iSCSI's own (RFC 7143, section 14).
const defaultPort = 3260

// undoLimit bounds the removal of a portal after a failure.
const undoLimit = 5 * time.Second

// MountISCSILun logs in to a target, brings the disk of one of its LUNs online, and
// returns the disk's number.
func (o *Operations) MountISCSILun(
	ctx context.Context, host api.Host, login api.ISCSILogin, lun uint32,
) (disk uint32, err error) {
	if err := checkLogin(login); err != nil {
		return 0, err
	}
	unlock, err := o.lock(session(login.Portal, login.IQN))
	if err != nil {
		return 0, err
	}
	defer unlock()
	// The host checks portal and name here, before the first change.
	disks, err := host.ISCSI.Disks(ctx, login.Portal, login.IQN)
	if err != nil {
		return 0, err
	}
	// A session with disks may lack its persistent login, if an earlier call was
	// interrupted. Connect adds it.
	if len(disks) > 0 {
		err = host.ISCSI.Connect(ctx, login)
	} else {
		err = connect(ctx, host.ISCSI, login)
	}
	if err != nil {
		return 0, err
	}
	found, err := o.waitForLUN(ctx, host, login, lun)
	if err != nil {
		return 0, err
	}
	// UnmountISCSILun takes a disk that is online for a user of the session.
	return found.Number, host.Disks.SetOnline(ctx, found.Number, found.Identity(), true)
}

// checkLogin rejects parameters that the host would reject only after the portal was
// added.
func checkLogin(login api.ISCSILogin) error {
	wantsCHAP := login.Auth != api.NoAuth
	switch {
	case login.Portal.Address == "":
		return fmt.Errorf("%w: the portal has no address", backend.ErrInvalid)
	case login.Portal.Port > 65535:
		return fmt.Errorf("%w: %d is not a TCP port", backend.ErrInvalid, login.Portal.Port)
	case login.IQN == "":
		return fmt.Errorf("%w: the target has no name", backend.ErrInvalid)
	case wantsCHAP && (login.Username == "" || login.Secret == ""):
		return fmt.Errorf("%w: CHAP needs a user and a secret", backend.ErrInvalid)
	case !wantsCHAP && (login.Username != "" || login.Secret != ""):
		return fmt.Errorf("%w: a user and a secret need CHAP", backend.ErrInvalid)
	}
	return nil
}

func connect(ctx context.Context, iscsi api.ISCSI, login api.ISCSILogin) error {
	known, err := iscsi.Portals(ctx)
	if err != nil {
		return err
	}
	added := !slices.ContainsFunc(known, func(p api.Portal) bool { return samePortal(p, login.Portal) })
	if added {
		if err := iscsi.AddPortal(ctx, login.Portal); err != nil {
			return err
		}
	}
	if err := findTarget(ctx, iscsi, login); err != nil {
		if added {
			err = errors.Join(err, forget(ctx, iscsi, login.Portal))
		}
		return err
	}
	return iscsi.Connect(ctx, login)
}

// findTarget makes the initiator discover the target.
func findTarget(ctx context.Context, iscsi api.ISCSI, login api.ISCSILogin) error {
	iqns, err := iscsi.Discover(ctx, login.Portal)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(iqns, func(iqn string) bool { return strings.EqualFold(iqn, login.IQN) }) {
		return fmt.Errorf("%w: portal %s does not offer target %s; it offers %d others", backend.ErrNotFound,
			portalText(login.Portal), login.IQN, len(iqns))
	}
	return nil
}

// forget removes a portal that this call added, also after the caller left.
func forget(ctx context.Context, iscsi api.ISCSI, portal api.Portal) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if err := iscsi.RemovePortal(ctx, portal); err != nil {
		return fmt.Errorf("remove portal %s: %w", portalText(portal), err)
	}
	return nil
}

// waitForLUN returns the LUN's disk. If the LUN was added to the target after the session
// began, its disk appears only after a rescan.
func (o *Operations) waitForLUN(
	ctx context.Context, host api.Host, login api.ISCSILogin, lun uint32,
) (api.Disk, error) {
	limit, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	var disks []api.Disk
	for scanned := false; ; {
		seen, err := sessionDisks(limit, host, login.Portal, login.IQN)
		if err == nil {
			disks = seen
			if i := atLUN(disks, lun); i >= 0 {
				return disks[i], nil
			}
			if !scanned {
				err, scanned = host.Disks.Rescan(limit), true
			}
		}
		if err != nil && limit.Err() == nil {
			return api.Disk{}, err
		}
		select {
		case <-limit.Done():
			return api.Disk{}, missingLUN(ctx, login.IQN, lun, disks)
		case <-time.After(o.Poll):
		}
	}
}

func missingLUN(ctx context.Context, iqn string, lun uint32, disks []api.Disk) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("waiting for the disk of LUN %d of target %s: %w", lun, iqn, err)
	}
	if len(disks) == 0 {
		return fmt.Errorf("%w: no disk of target %s has arrived", backend.ErrUnavailable, iqn)
	}
	luns := make([]string, len(disks))
	for i, disk := range disks {
		if luns[i] = "unknown"; disk.Location != nil {
			luns[i] = disk.Location.LUN
		}
	}
	return fmt.Errorf("%w: target %s has no disk at LUN %d; its disks are at %s", backend.ErrNotFound, iqn, lun,
		strings.Join(luns, ", "))
}

// sessionDisks returns the disks of a session. A disk that Windows does not list has a
// Problem.
func sessionDisks(ctx context.Context, host api.Host, portal api.Portal, iqn string) ([]api.Disk, error) {
	numbers, err := host.ISCSI.Disks(ctx, portal, iqn)
	if err != nil || len(numbers) == 0 {
		return nil, err
	}
	all, err := host.Disks.List(ctx)
	if err != nil {
		return nil, err
	}
	disks := make([]api.Disk, len(numbers))
	for i, number := range numbers {
		disks[i] = api.Disk{Number: number, Problem: backend.ErrNotFound}
		if at := slices.IndexFunc(all, func(d api.Disk) bool { return d.Number == number }); at >= 0 {
			disks[i] = all[at]
		}
	}
	return disks, nil
}

// atLUN returns the index of the disk with a LUN, or -1.
func atLUN(disks []api.Disk, lun uint32) int {
	return slices.IndexFunc(disks, func(d api.Disk) bool {
		if d.Location == nil {
			return false
		}
		number, err := strconv.ParseUint(d.Location.LUN, 10, 32)
		return err == nil && uint32(number) == lun
	})
}

// UnmountISCSILun takes the LUN's disk offline, and ends the session when none of
// its disks is online any more.
func (o *Operations) UnmountISCSILun(
	ctx context.Context, host api.Host, portal api.Portal, iqn string, lun uint32,
) error {
	unlock, err := o.lock(session(portal, iqn))
	if err != nil {
		return err
	}
	defer unlock()
	disks, err := sessionDisks(ctx, host, portal, iqn)
	if err != nil {
		return err
	}
	if i := atLUN(disks, lun); i >= 0 {
		if err := host.Disks.SetOnline(ctx, disks[i].Number, disks[i].Identity(), false); err != nil {
			return err
		}
		disks = slices.Delete(disks, i, i+1)
	}
	// A disk that could not be read may be in use.
	if slices.ContainsFunc(disks, func(d api.Disk) bool { return d.Online || d.Problem != nil }) {
		return nil
	}
	return host.ISCSI.Disconnect(ctx, portal, iqn)
}

func session(portal api.Portal, iqn string) string {
	return "iSCSI target " + strings.ToLower(iqn) + " at " + portalText(portal)
}

func samePortal(a, b api.Portal) bool { return portalText(a) == portalText(b) }

// portalText is address:port, with the default port if none is given.
func portalText(p api.Portal) string {
	port := p.Port
	if port == 0 {
		port = defaultPort
	}
	return strings.ToLower(p.Address) + ":" + strconv.FormatUint(uint64(port), 10)
}
