package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// system is api.System.
type system struct{ *Host }

// defaultService is the service that System manages if none is configured.
const defaultService = "MSiSCSI"

// serviceLimit is how long a service may take to start or stop.
const serviceLimit = 30 * time.Second

// States of a service (winsvc.h).
const (
	serviceStopped      = 1
	serviceStartPending = 2
	serviceStopPending  = 3
	serviceRunning      = 4
)

// serviceDisabled is the start type of a service that cannot be started.
const serviceDisabled = 4

func serviceKey(name string) string { return "service " + strings.ToLower(name) }

// known returns a configured service's name. All other services of the machine are
// unknown here: a caller of the pipe must not be able to stop its firewall.
func (s system) known(name string) (string, error) {
	names := s.options.Services
	if len(names) == 0 {
		names = []string{defaultService}
	}
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n, nil
		}
	}
	return "", fmt.Errorf("%w: service %.100q is not one that this proxy may manage; those are %s",
		backend.ErrNotFound, name, strings.Join(names, ", "))
}

// BIOSSerialNumber reads the SMBIOS table, not WMI.
func (s system) BIOSSerialNumber(ctx context.Context) (string, error) {
	return ask(ctx, s.tasks, "the SMBIOS table", func(context.Context) (string, error) {
		table, err := s.machine.Firmware.SMBIOS()
		if err != nil {
			return "", failed(err, "read the SMBIOS table")
		}
		return win32.SystemSerial(table)
	})
}

// Service returns the state of a service.
func (s system) Service(ctx context.Context, name string) (api.Service, error) {
	name, err := s.known(name)
	if err != nil {
		return api.Service{}, err
	}
	return ask(ctx, s.tasks, serviceKey(name), func(context.Context) (api.Service, error) {
		return s.queryService(name)
	})
}

func (h *Host) queryService(name string) (api.Service, error) {
	service, err := h.machine.Services.Query(name)
	return service, failed(err, "query service %s", name)
}

// StartService returns when the service runs.
func (s system) StartService(ctx context.Context, name string) error {
	name, err := s.known(name)
	if err != nil {
		return err
	}
	return s.startService(ctx, name)
}

func (h *Host) startService(ctx context.Context, name string) error {
	return run(ctx, h.tasks, []string{serviceKey(name)}, func(ctx context.Context) error {
		return h.runService(ctx, name)
	})
}

// runService starts the service once and waits until it runs. A service that is stopping
// can be started only after it has stopped.
func (h *Host) runService(ctx context.Context, name string) error {
	requested := false
	var last api.Service
	runs, err := poll(ctx, serviceLimit, func() (_ bool, err error) {
		if last, err = h.queryService(name); err != nil {
			return false, err
		}
		switch {
		case last.Status == serviceRunning:
			return true, nil
		case last.Status != serviceStopped:
			return false, nil
		case last.StartType == serviceDisabled:
			return false, fmt.Errorf("%w: service %s is disabled; enable it: %w", backend.ErrPrecondition, name,
				win32.ErrorServiceDisabled)
		case requested:
			return false, fmt.Errorf("%w: service %s stopped again right after its start; see the event log",
				backend.ErrUnavailable, name)
		}
		requested = true
		err = h.machine.Services.Start(name)
		if isErrno(err, win32.ErrorServiceAlreadyRunning) {
			err = nil
		}
		return false, failed(err, "start service %s", name)
	})
	if err == nil && !runs {
		err = fmt.Errorf("%w: service %s does not run after %s; its state is %d", backend.ErrUnavailable, name,
			serviceLimit, last.Status)
	}
	return err
}

// StopService returns when the service has stopped. With force, it first stops the
// running services that depend on it; without force, they are an error.
func (s system) StopService(ctx context.Context, name string, force bool) error {
	name, err := s.known(name)
	if err != nil {
		return err
	}
	return run(ctx, s.tasks, []string{serviceKey(name)}, func(ctx context.Context) error {
		return s.stop(ctx, name, force, nil)
	})
}

// stop stops a service; above are the services on which it depends and for which it is
// stopped.
func (s system) stop(ctx context.Context, name string, force bool, above []string) error {
	for _, n := range above {
		if strings.EqualFold(n, name) {
			return fmt.Errorf("%w: services depend on each other in a circle: %s",
				backend.ErrPrecondition, strings.Join(append(above, name), ", "))
		}
	}
	service, err := s.queryService(name)
	if err != nil || service.Status == serviceStopped {
		return err
	}
	dependents, err := s.machine.Services.Dependents(name)
	if err != nil {
		return failed(err, "list the services that depend on %s", name)
	}
	if len(dependents) > 0 && !force {
		return fmt.Errorf("%w: %s depend on service %s, so it is stopped with force only: %w",
			backend.ErrPrecondition, strings.Join(dependents, ", "), name, win32.ErrorDependentServicesRunning)
	}
	for _, dependent := range dependents {
		if err := s.stop(ctx, dependent, force, append(above, name)); err != nil {
			return err
		}
	}
	return s.stopOne(ctx, name)
}

func (s system) stopOne(ctx context.Context, name string) error {
	requested := false
	stopped, err := poll(ctx, serviceLimit, func() (bool, error) {
		service, err := s.queryService(name)
		if err != nil || service.Status == serviceStopped {
			return err == nil, err
		}
		if requested || service.Status == serviceStartPending || service.Status == serviceStopPending {
			return false, nil
		}
		requested = true
		err = s.machine.Services.Stop(name)
		if isErrno(err, win32.ErrorServiceNotActive) {
			err = nil
		}
		return false, failed(err, "stop service %s", name)
	})
	if err == nil && !stopped {
		err = fmt.Errorf("%w: service %s has not stopped within %s", backend.ErrUnavailable, name, serviceLimit)
	}
	return err
}
