package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// iscsi is api.ISCSI.
type iscsi struct{ *Host }

const (
	// deviceLimit bounds the wait for the first disk of a session.
	deviceLimit = 30 * time.Second
	// busyLimit is how long a session may be busy.
	busyLimit = 15 * time.Second
)

func portalKey(p api.Portal) string {
	return fmt.Sprintf("portal %s port %d", strings.ToLower(p.Address), p.Port)
}

func targetKey(iqn string) string { return "target " + strings.ToLower(iqn) }

func samePortal(a, b api.Portal) bool {
	return a.Port == b.Port && strings.EqualFold(a.Address, b.Address)
}

// initiator runs an operation once the initiator's service runs: without it, every
// call fails.
func initiator[T any](ctx context.Context, i iscsi, keys []string, do func(context.Context) (T, error)) (T, error) {
	var none T
	service, err := ask(ctx, i.tasks, serviceKey(defaultService), func(context.Context) (api.Service, error) {
		return i.queryService(defaultService)
	})
	switch {
	case isErrno(err, win32.ErrorServiceDoesNotExist):
		return none, fmt.Errorf("%w: this machine has no iSCSI initiator: %w", backend.ErrPrecondition, err)
	case err != nil:
		return none, err
	case service.Status != serviceRunning:
		if err := i.startService(ctx, defaultService); err != nil {
			return none, err
		}
	}
	return operate(ctx, i.tasks, keys, do)
}

// AddPortal adds a portal, which Windows discovers at once. An existing portal is not
// an error.
func (i iscsi) AddPortal(ctx context.Context, portal api.Portal) error {
	return i.changePortal(ctx, portal, true, func(ctx context.Context, portal api.Portal) error {
		err := i.machine.ISCSI.AddPortal(ctx, portal)
		if isErrno(err, win32.ISDSCTargetPortalAlreadyExists) {
			return nil
		}
		return failed(err, "AddIScsiSendTargetPortalW")
	})
}

// changePortal adds or removes a portal unless that is done, and reads it back.
func (i iscsi) changePortal(
	ctx context.Context, portal api.Portal, desired bool, change func(context.Context, api.Portal) error,
) error {
	portal, err := checkPortal(portal)
	if err != nil {
		return err
	}
	_, err = initiator(ctx, i, []string{portalKey(portal)}, noResult(func(ctx context.Context) error {
		if listed, err := i.hasPortal(ctx, portal); listed == desired || err != nil {
			return err
		}
		if err := change(ctx, portal); err != nil {
			return fmt.Errorf("target %s: %w", portalKey(portal), err)
		}
		listed, err := i.hasPortal(ctx, portal)
		if err == nil && listed != desired {
			err = fmt.Errorf("target %s: Windows answered success, but the portal is listed: %t", portalKey(portal), listed)
		}
		return err
	}))
	return err
}

func (i iscsi) hasPortal(ctx context.Context, portal api.Portal) (bool, error) {
	portals, err := i.machine.ISCSI.Portals(ctx)
	if err != nil {
		return false, failed(err, "list target portals")
	}
	return slices.ContainsFunc(portals, func(p api.Portal) bool { return samePortal(p, portal) }), nil
}

// Discover repeats the discovery of the portal.
func (i iscsi) Discover(ctx context.Context, portal api.Portal) ([]string, error) {
	portal, err := checkPortal(portal)
	if err != nil {
		return nil, err
	}
	return initiator(ctx, i, []string{portalKey(portal)}, func(ctx context.Context) ([]string, error) {
		there, err := i.hasPortal(ctx, portal)
		if err != nil {
			return nil, err
		}
		if !there {
			return nil, fmt.Errorf("%w: target portal %s port %d has not been added", backend.ErrNotFound,
				portal.Address, portal.Port)
		}
		targets, err := i.machine.ISCSI.Targets(ctx, portal, true)
		return targets, failed(err, "discover target portal %s port %d", portal.Address, portal.Port)
	})
}

// RemovePortal removes a portal; a missing one is not an error. Its sessions stay.
func (i iscsi) RemovePortal(ctx context.Context, portal api.Portal) error {
	return i.changePortal(ctx, portal, false, func(ctx context.Context, portal api.Portal) error {
		err := i.machine.ISCSI.RemovePortal(ctx, portal)
		if isErrno(err, win32.ISDSCPortalNotFound) {
			return nil
		}
		return failed(err, "RemoveIScsiSendTargetPortalW")
	})
}

// Portals lists the portals that were added.
func (i iscsi) Portals(ctx context.Context) ([]api.Portal, error) {
	return initiator(ctx, i, nil, func(ctx context.Context) ([]api.Portal, error) {
		portals, err := i.machine.ISCSI.Portals(ctx)
		return portals, failed(err, "list target portals")
	})
}

// SetMutualSecret replaces the secret for all sessions of the machine, including those
// of other drivers: Windows has one.
func (i iscsi) SetMutualSecret(ctx context.Context, secret api.Secret) error {
	if err := checkCHAPSecret(secret); err != nil {
		return err
	}
	_, err := initiator(ctx, i, []string{"the mutual CHAP secret"}, noResult(func(ctx context.Context) error {
		return failed(i.machine.ISCSI.SetSharedSecret(ctx, secret), "set the mutual CHAP secret")
	}))
	return err
}
