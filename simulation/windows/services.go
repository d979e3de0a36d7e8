package windows

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// States and start types of the service control manager.
const (
	serviceStopped      = 1
	serviceStartPending = 2
	serviceStopPending  = 3
	serviceRunning      = 4

	startAutomatic = 2
	startManual    = 3
	startDisabled  = 4
)

// ServiceSpec is a service of the machine.
type ServiceSpec struct {
	Name, DisplayName string
	StartType         uint32 // as in api.Service; 0 is taken for manual
	Running           bool
	// DependsOn are the services that it needs, which are started with it.
	DependsOn []string
	// StartDelay and StopDelay are how long it is pending.
	StartDelay, StopDelay time.Duration
	// StartError is what starting it gives.
	StartError win32.Errno
}

type service struct {
	ServiceSpec
	state uint32
	due   time.Time // when a pending state ends
}

// AddService adds a service, or replaces it.
func (m *Machine) AddService(spec ServiceSpec) error {
	if spec.Name == "" {
		return fmt.Errorf("simulated: a service without a name")
	}
	if spec.StartType == 0 {
		spec.StartType = startManual
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.service(spec.Name)
	if s == nil {
		s = &service{}
		m.services = append(m.services, s)
	}
	*s = service{ServiceSpec: spec, state: serviceStopped}
	if spec.Running {
		s.state = serviceRunning
	}
	return nil
}

func (m *Machine) service(name string) *service {
	for _, s := range m.services {
		if strings.EqualFold(s.Name, name) {
			return s
		}
	}
	return nil
}

// advanceServices ends pending states whose time has come.
func (m *Machine) advanceServices(now time.Time) {
	for _, s := range m.services {
		if now.Before(s.due) {
			continue
		}
		switch s.state {
		case serviceStopPending:
			s.state = serviceStopped
		case serviceStartPending:
			s.state = serviceRunning
			if strings.EqualFold(s.Name, iscsiService) {
				m.repeatLogins()
			}
		}
	}
}

// start starts a service behind those that it needs; the time when it will run.
func (m *Machine) start(s *service, depth int) (time.Time, error) {
	now := time.Now()
	switch {
	case s.StartType == startDisabled:
		return now, win32.ErrorServiceDisabled
	case s.state == serviceRunning:
		return now, nil
	case s.state != serviceStopped:
		return s.due, nil
	case s.StartError != 0:
		return now, s.StartError
	}
	for _, name := range s.DependsOn {
		needed := m.service(name)
		if needed == nil || depth > len(m.services) {
			return now, win32.ErrorServiceDependencyFail
		}
		due, err := m.start(needed, depth+1)
		if err != nil {
			return now, win32.ErrorServiceDependencyFail
		}
		if due.After(now) {
			now = due
		}
	}
	s.state, s.due = serviceStartPending, now.Add(s.StartDelay)
	return s.due, nil
}

// dependents are the active services that need s directly.
func (m *Machine) dependents(s *service) (names []string) {
	for _, other := range m.services {
		needs := slices.ContainsFunc(other.DependsOn, func(name string) bool { return strings.EqualFold(name, s.Name) })
		if needs && other.state != serviceStopped {
			names = append(names, other.Name)
		}
	}
	return names
}

type serviceCalls struct{ c *client }

// onService makes a call on a service.
func onService[T any](c *client, call, name string, changes bool, effect func(*service) (T, error)) (T, error) {
	described := Call{Name: call, Targets: []string{name}, Changes: changes}
	return invoke(context.Background(), c, described, func() (T, error) {
		s := c.m.service(name)
		if s == nil {
			var zero T
			return zero, win32.ErrorServiceDoesNotExist
		}
		return effect(s)
	})
}

// Query implements win32.Services.
func (s serviceCalls) Query(name string) (api.Service, error) {
	return onService(s.c, "Services.Query", name, false, func(of *service) (api.Service, error) {
		return api.Service{DisplayName: of.DisplayName, StartType: of.StartType, Status: of.state}, nil
	})
}

// Start implements win32.Services.
func (s serviceCalls) Start(name string) error {
	_, err := onService(s.c, "Services.Start", name, true, func(of *service) (none, error) {
		if of.state != serviceStopped {
			return none{}, win32.ErrorServiceAlreadyRunning
		}
		_, err := s.c.m.start(of, 0)
		s.c.m.advance()
		return none{}, err
	})
	return err
}

// Stop implements win32.Services.
func (s serviceCalls) Stop(name string) error {
	_, err := onService(s.c, "Services.Stop", name, true, func(of *service) (none, error) {
		switch {
		case of.state == serviceStopped:
			return none{}, win32.ErrorServiceNotActive
		case of.state != serviceRunning:
			return none{}, win32.ErrorServiceCannotAcceptCtrl
		case len(s.c.m.dependents(of)) > 0:
			return none{}, win32.ErrorDependentServicesRunning
		}
		of.state, of.due = serviceStopPending, time.Now().Add(of.StopDelay)
		s.c.m.advance()
		return none{}, nil
	})
	return err
}

// Dependents implements win32.Services.
func (s serviceCalls) Dependents(name string) ([]string, error) {
	return onService(s.c, "Services.Dependents", name, false, func(of *service) ([]string, error) {
		return s.c.m.dependents(of), nil
	})
}

type firmwareCalls struct{ c *client }

// SMBIOS implements win32.Firmware: a BIOS, a system with its serial number, and
// the end (DSP0134).
func (f firmwareCalls) SMBIOS() ([]byte, error) {
	return invoke(context.Background(), f.c, Call{Name: "Firmware.SMBIOS"}, func() ([]byte, error) {
		var table bytes.Buffer
		structure := func(kind byte, body []byte, texts ...string) {
			table.Write([]byte{kind, byte(4 + len(body)), kind, 0})
			table.Write(body)
			for _, text := range texts {
				table.WriteString(text + "\x00")
			}
			if len(texts) == 0 {
				table.WriteByte(0)
			}
			table.WriteByte(0)
		}
		structure(0, append([]byte{1, 2, 0, 0, 3}, make([]byte, 15)...), "Simulated", "1.0", "01/01/2026")
		system := append([]byte{1, 2, 3, 4}, make([]byte, 19)...)
		serial := f.c.m.options.BIOSSerial
		if serial == "" {
			system[3] = 0
			structure(1, system, "Simulated", "Machine", "1")
		} else {
			structure(1, system, "Simulated", "Machine", "1", serial)
		}
		structure(127, nil)
		header := []byte{0, 3, 3, 0, 0, 0, 0, 0}
		binary.LittleEndian.PutUint32(header[4:], uint32(table.Len()))
		return append(header, table.Bytes()...), nil
	})
}
