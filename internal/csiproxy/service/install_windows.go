package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"
)

// forgetFailures is the time without a failure after which Windows resets their count.
// Every failure has the same recovery action, so any value will do.
const forgetFailures = 24 * time.Hour

// kinds are the types of events that the source may write.
const kinds = eventlog.Error | eventlog.Warning | eventlog.Info

// Install creates the service's entry, or updates an existing one to this
// configuration. A running service keeps the old configuration until it is restarted.
// The service starts with the machine.
func Install(ctx context.Context, c Config) (notes Notes, err error) {
	manager, err := mgr.Connect()
	if err != nil {
		return nil, fmt.Errorf("the service control manager (run this as an administrator): %w", err)
	}
	defer func() { _ = manager.Disconnect() }()
	s, err := createOrUpdate(ctx, manager, c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	if err := recovery(s, c, &notes); err != nil {
		return notes, err
	}
	if err := preshutdown(s, c.StopTime); err != nil {
		notes = append(notes, fmt.Sprintf("the time to stop at a shutdown stays Windows' default: %v", err))
	}
	if err := eventSource(c.Name); err != nil {
		notes = append(notes, fmt.Sprintf("the event log shows events of %s without their text: %v", c.Name, err))
	}
	return notes, readBack(s, c, &notes)
}

func createOrUpdate(ctx context.Context, manager *mgr.Mgr, c Config) (*mgr.Service, error) {
	entry := mgr.Config{
		ServiceType: windows.SERVICE_WIN32_OWN_PROCESS, StartType: mgr.StartAutomatic, ErrorControl: mgr.ErrorNormal,
		DisplayName: c.DisplayName, Description: c.Description,
	}
	s, err := manager.OpenService(c.Name)
	if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		return create(ctx, manager, c, entry)
	}
	if err != nil {
		return nil, fmt.Errorf("open the service %s: %w", c.Name, err)
	}
	if err := update(s, c, entry); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("change the service %s: %w", c.Name, err)
	}
	return s, nil
}

// update does the same as UpdateConfig of package mgr, except for settings that this
// service does not use and that not every Windows-like system knows.
func update(s *mgr.Service, c Config, entry mgr.Config) error {
	texts := []string{command(c), c.DisplayName, c.Description}
	pointers := make([]*uint16, len(texts))
	for i, text := range texts {
		var err error
		if pointers[i], err = windows.UTF16PtrFromString(text); err != nil {
			return err
		}
	}
	if err := windows.ChangeServiceConfig(s.Handle, entry.ServiceType, entry.StartType, entry.ErrorControl, pointers[0],
		nil, nil, nil, nil, nil, pointers[1]); err != nil {
		return err
	}
	description := windows.SERVICE_DESCRIPTION{Description: pointers[2]}
	return windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_DESCRIPTION,
		(*byte)(unsafe.Pointer(&description)))
}

// entryOf reads the manager's entry: the start type and the command.
func entryOf(s *mgr.Service) (startType uint32, command string, err error) {
	buffer := make([]byte, 8<<10) // the most there can be (QueryServiceConfig)
	var needed uint32
	entry := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&buffer[0]))
	if err := windows.QueryServiceConfig(s.Handle, entry, uint32(len(buffer)), &needed); err != nil {
		return 0, "", err
	}
	return entry.StartType, windows.UTF16PtrToString(entry.BinaryPathName), nil
}

// create creates the service. A service of the same name may be being deleted: create
// waits until the last handle to it is closed.
func create(ctx context.Context, manager *mgr.Mgr, c Config, entry mgr.Config) (*mgr.Service, error) {
	for {
		s, err := manager.CreateService(c.Name, c.Program, entry, c.Arguments...)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
			return nil, fmt.Errorf("create the service %s: %w", c.Name, err)
		}
		if pause(ctx) != nil {
			return nil, fmt.Errorf("create the service %s: an older one of that name is being deleted; close the programs that have it open, such "+
				"as services.msc: %w", c.Name, err)
		}
	}
}

// command is the command line of a service, as CreateService of package mgr
// makes it.
func command(c Config) string {
	parts := []string{windows.EscapeArg(c.Program)}
	for _, argument := range c.Arguments {
		parts = append(parts, windows.EscapeArg(argument))
	}
	return strings.Join(parts, " ")
}

// recovery restarts the service after each unexpected end, also one with an exit
// code.
func recovery(s *mgr.Service, c Config, notes *Notes) error {
	again := mgr.RecoveryAction{Type: mgr.ServiceRestart, Delay: c.Restart}
	if err := s.SetRecoveryActions([]mgr.RecoveryAction{again, again, again},
		uint32(forgetFailures/time.Second)); err != nil {
		return fmt.Errorf("set the restart of %s after a failure: %w", c.Name, err)
	}
	if err := s.SetRecoveryActionsOnNonCrashFailures(true); err != nil {
		*notes = append(*notes, fmt.Sprintf("a service that ends with an error, rather than by a crash, is not restarted: %v", err))
	}
	return nil
}

// preshutdown sets how long the machine's shutdown waits
// (SERVICE_CONFIG_PRESHUTDOWN_INFO).
func preshutdown(s *mgr.Service, limit time.Duration) error {
	const preshutdownInfo = 7
	milliseconds := uint32(limit / time.Millisecond)
	return windows.ChangeServiceConfig2(s.Handle, preshutdownInfo, (*byte)(unsafe.Pointer(&milliseconds)))
}

// eventSource registers the texts of the service's events with the event log.
func eventSource(name string) error {
	err := eventlog.InstallAsEventCreate(name, kinds)
	if err != nil && strings.Contains(err.Error(), "already exists") { // the package has no error value for it
		return nil
	}
	return err
}

// readBack compares the manager's entry with the configuration.
func readBack(s *mgr.Service, c Config, notes *Notes) error {
	startType, line, err := entryOf(s)
	if err != nil {
		return fmt.Errorf("read the service %s back: %w", c.Name, err)
	}
	if startType != mgr.StartAutomatic || line != command(c) {
		return fmt.Errorf("the service %s was changed, but its start type is %d and its command %s", c.Name, startType, line)
	}
	actions, err := s.RecoveryActions()
	if err != nil {
		*notes = append(*notes, fmt.Sprintf("the recovery actions cannot be read back: %v", err))
		return nil
	}
	if len(actions) == 0 || actions[0].Type != mgr.ServiceRestart {
		return fmt.Errorf("the service %s was changed, but it is not restarted when it fails", c.Name)
	}
	return nil
}

// Remove stops the service and deletes its entry. A missing one is not an error.
func Remove(ctx context.Context, name string) error {
	if err := Stop(ctx, name); err != nil && !errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		return err
	}
	err := with(name, func(s *mgr.Service) error {
		err := s.Delete()
		if errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
			return nil
		}
		return err
	})
	if err != nil && !errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		return fmt.Errorf("delete the service %s: %w", name, err)
	}
	if err := eventlog.Remove(name); err != nil && !errors.Is(err, windows.ERROR_FILE_NOT_FOUND) {
		return fmt.Errorf("remove the event source %s: %w", name, err)
	}
	for {
		status, err := Query(name)
		if err != nil || status.State == NotInstalled {
			return err
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("the service %s is not deleted before all programs have closed it, such as services.msc: %w",
				name, err)
		}
	}
}

// with opens a service and runs step with it.
func with(name string, step func(*mgr.Service) error) error {
	manager, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("the service control manager (run this as an administrator): %w", err)
	}
	defer func() { _ = manager.Disconnect() }()
	s, err := manager.OpenService(name)
	if err != nil {
		return fmt.Errorf("open the service %s: %w", name, err)
	}
	defer func() { _ = s.Close() }()
	return step(s)
}

// pause waits between two polls.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

// state names the manager's number.
func state(number svc.State) State {
	switch number {
	case svc.Stopped:
		return StateStopped
	case svc.StartPending:
		return Starting
	case svc.StopPending:
		return Stopping
	case svc.Running:
		return Running
	}
	return Other
}
