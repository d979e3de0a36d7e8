package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// Query returns the state of a service; one that is not installed is not an error.
func Query(name string) (status Status, err error) {
	err = with(name, func(s *mgr.Service) error {
		now, err := s.Query()
		if err != nil {
			return fmt.Errorf("ask for the state of %s: %w", name, err)
		}
		status = Status{State: state(now.State), ProcessID: now.ProcessId, ExitCode: now.Win32ExitCode}
		if now.Win32ExitCode == uint32(windows.ERROR_SERVICE_SPECIFIC_ERROR) {
			status.ExitCode = now.ServiceSpecificExitCode
		}
		number, command, err := entryOf(s)
		if err != nil {
			return fmt.Errorf("ask for the entry of %s: %w", name, err)
		}
		status.Start, status.Command = startType(number), command
		return nil
	})
	if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		return Status{State: NotInstalled}, nil
	}
	return status, err
}

func startType(number uint32) string {
	switch number {
	case mgr.StartAutomatic:
		return "automatic"
	case mgr.StartManual:
		return "manual"
	case mgr.StartDisabled:
		return "disabled"
	}
	return fmt.Sprintf("start type %d", number)
}

// Start starts the service and waits until it runs. A running one is not an error.
func Start(ctx context.Context, name string) error {
	err := with(name, func(s *mgr.Service) error { return s.Start() })
	if err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
		return fmt.Errorf("start the service %s: %w", name, err)
	}
	for {
		status, err := Query(name)
		switch {
		case err != nil:
			return err
		case status.State == Running:
			return nil
		case status.State == StateStopped:
			return fmt.Errorf("the service %s ended at once with code %d; see the event log, source %s, and the file of its "+
				"--log-file", name, status.ExitCode, name)
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("the service %s does not get ready, it is %q: %w", name, status.State, err)
		}
	}
}

// Stop stops the service and waits until its process has exited. A stopped service is not
// an error.
func Stop(ctx context.Context, name string) error {
	var process windows.Handle
	err := with(name, func(s *mgr.Service) error {
		if now, err := s.Query(); err == nil && now.ProcessId != 0 {
			process, _ = windows.OpenProcess(windows.SYNCHRONIZE, false, now.ProcessId)
		}
		_, err := s.Control(svc.Stop)
		return err
	})
	if process != 0 {
		defer func() { _ = windows.CloseHandle(process) }()
	}
	stopping := errors.Is(err, windows.ERROR_SERVICE_CANNOT_ACCEPT_CTRL) // it is starting or stopping
	if err != nil && !stopping && !errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return fmt.Errorf("stop the service %s: %w", name, err)
	}
	for again := stopping; ; {
		status, err := Query(name)
		if err != nil {
			return err
		}
		if status.State == StateStopped || status.State == NotInstalled {
			break
		}
		if again && status.State == Running {
			return Stop(ctx, name)
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("the service %s does not stop, it is %q: %w", name, status.State, err)
		}
	}
	return gone(ctx, name, process)
}

// gone waits until the service's process has exited.
func gone(ctx context.Context, name string, process windows.Handle) error {
	if process == 0 {
		return nil
	}
	for {
		event, err := windows.WaitForSingleObject(process, 0)
		if err != nil {
			return fmt.Errorf("wait for the process of %s: %w", name, err)
		}
		if event == windows.WAIT_OBJECT_0 {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("the service %s has stopped, but its process still runs: %w", name, err)
		}
	}
}

// checkpoint is the time between two reports to the manager while the service starts or
// stops.
const checkpoint = time.Second

// Run runs a process that the manager started. It cancels the context of work when
// the manager or the machine's shutdown requests a stop, and reports the service
// stopped when work has returned, so that no call is answered after that. The caller
// exits the process when Run returns. limit is how long a stop may take.
func Run(name string, limit time.Duration, work func(ctx context.Context, ready func()) error) error {
	s := &life{limit: limit, work: work}
	if err := svc.Run(name, s); err != nil {
		return fmt.Errorf("run as the service %s (only the service control manager sets --windows-service, and it did not start "+
			"this process): %w", name, err)
	}
	return s.err
}

// life implements svc.Handler.
type life struct {
	limit time.Duration
	work  func(ctx context.Context, ready func()) error
	err   error // of work
}

const accepted = svc.AcceptStop | svc.AcceptShutdown | svc.AcceptPreShutdown

// Execute implements svc.Handler.
func (l *life) Execute(
	_ []string, requests <-chan svc.ChangeRequest, changes chan<- svc.Status,
) (specific bool, code uint32) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- l.work(ctx, func() { close(ready) }) }()

	now := svc.Status{State: svc.StartPending, Accepts: svc.AcceptStop, WaitHint: hint(3 * checkpoint)}
	changes <- now
	signs := time.NewTicker(checkpoint)
	defer signs.Stop()
	overdue := make(<-chan time.Time)
	for {
		select {
		case <-ready:
			ready = nil
			if now.State == svc.StartPending {
				now = svc.Status{State: svc.Running, Accepts: accepted}
				changes <- now
			}
		case request := <-requests:
			switch request.Cmd {
			case svc.Interrogate:
				changes <- request.CurrentStatus
			case svc.Stop, svc.Shutdown, svc.PreShutdown:
				if now.State != svc.StopPending {
					now = svc.Status{State: svc.StopPending, WaitHint: hint(3 * checkpoint)}
					changes <- now
					overdue = time.After(l.limit)
					cancel()
				}
			}
		case <-signs.C:
			if now.State != svc.Running {
				now.CheckPoint++
				changes <- now
			}
		case l.err = <-done:
			return l.ended()
		case <-overdue:
			l.err = fmt.Errorf("the service did not end within %v after the request to stop", l.limit)
			return l.ended()
		}
	}
}

// ended returns the exit code. The recovery actions restart a service that fails.
func (l *life) ended() (specific bool, code uint32) {
	if l.err != nil {
		return true, 1
	}
	return false, 0
}

func hint(d time.Duration) uint32 { return uint32(d / time.Millisecond) }
