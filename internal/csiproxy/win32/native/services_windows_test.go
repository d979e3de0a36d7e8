package native

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

func ptr[T any](value *T) uintptr { return uintptr(unsafe.Pointer(value)) }

// asService makes this very program a service that runs until it is stopped.
const asService = "-as-service"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asService {
		if err := svc.Run(os.Args[2], testService{}); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type testService struct{}

func (testService) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (bool, uint32) {
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop}
	for request := range requests {
		if request.Cmd == svc.Stop {
			status <- svc.Status{State: svc.StopPending}
			return false, 0
		}
		status <- request.CurrentStatus
	}
	return false, 0
}

// install makes a service of this program; dependencies must run before it.
func install(t *testing.T, name string, dependencies ...string) {
	t.Helper()
	manager, err := mgr.Connect()
	must(t, err)
	defer func() { _ = manager.Disconnect() }()
	program, err := os.Executable()
	must(t, err)
	service, err := manager.CreateService(name, program, mgr.Config{
		DisplayName: name + " display", StartType: mgr.StartManual, Dependencies: dependencies,
	}, asService, name)
	must(t, err)
	t.Cleanup(func() {
		_, _ = service.Control(svc.Stop)
		if err := service.Delete(); err != nil {
			t.Error(err)
		}
		_ = service.Close()
	})
}

func TestServices_areQueriedStartedAndStopped(t *testing.T) {
	const name = "holdfast-native-test"
	install(t, name)
	s := services{}
	service, err := s.Query(name)
	must(t, err)
	if service.DisplayName != name+" display" || service.StartType != 3 || service.Status != 1 {
		t.Fatalf("installed: %+v", service)
	}
	refused(t, "stop of what is stopped", s.Stop(name), win32.ErrorServiceNotActive)
	must(t, s.Start(name))
	waitFor(t, name, 4)
	refused(t, "start of what runs", s.Start(name), win32.ErrorServiceAlreadyRunning)
	must(t, s.Stop(name))
	waitFor(t, name, 1)
}

func waitFor(t *testing.T, name string, status uint32) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		service, err := services{}.Query(name)
		must(t, err)
		if service.Status == status {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is %d, not %d", name, service.Status, status)
		}
	}
}

func TestServices_returnTheirDependents(t *testing.T) {
	const name, dependent = "holdfast-native-below", "holdfast-native-above"
	install(t, name)
	install(t, dependent, name)
	s := services{}
	must(t, s.Start(name)) // wine does not start what a service depends on
	waitFor(t, name, 4)
	must(t, s.Start(dependent))
	waitFor(t, dependent, 4)
	names, err := s.Dependents(name)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, dependent) {
		effectMissing(t, "EnumDependentServices", errors.New("the dependent is not in it"))
	}
	t.Run("and stop with them", func(t *testing.T) {
		err := s.Stop(name)
		if err == nil {
			effectMissing(t, "ControlService", errors.New("it stops what others depend on"))
		}
		refused(t, "stop below it", err, win32.ErrorDependentServicesRunning)
	})
}

func TestServices_unknownOnesHaveTheirNumber(t *testing.T) {
	s := services{}
	_, err := s.Query("holdfast-no-such-service")
	refused(t, "query", err, win32.ErrorServiceDoesNotExist)
	_, err = s.Dependents("holdfast-no-such-service")
	refused(t, "dependents", err, win32.ErrorServiceDoesNotExist)
	refused(t, "start", s.Start("holdfast-no-such-service"), win32.ErrorServiceDoesNotExist)
	refused(t, "stop", s.Stop("holdfast-no-such-service"), win32.ErrorServiceDoesNotExist)
}

func TestFirmware_givesAReadableTable(t *testing.T) {
	table, err := firmware{}.SMBIOS()
	if err != nil {
		effectMissing(t, "GetSystemFirmwareTable", err)
	}
	serial, err := win32.SystemSerial(table)
	if err != nil {
		t.Errorf("%d bytes: %v", len(table), err)
	}
	t.Logf("%d bytes, serial number %q", len(table), serial)
}
