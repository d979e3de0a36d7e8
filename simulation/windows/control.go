package windows

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// mostBody is how many bytes a request to the control has at most.
const mostBody = 1 << 20

// Control lets tests in other processes drive the machine; the package's comment
// lists its endpoints. It has no protection: serve it on a loopback
// address only.
func Control(m *Machine) http.Handler {
	c := &controller{m: m, faults: map[int]*Injected{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { answer(w, m.State(), nil) })
	mux.HandleFunc("GET /check", func(w http.ResponseWriter, _ *http.Request) { answer(w, struct{}{}, m.Check()) })
	mux.HandleFunc("POST /reboot", func(w http.ResponseWriter, _ *http.Request) {
		m.Reboot()
		answer(w, struct{}{}, nil)
	})
	mux.HandleFunc("POST /disks", with(c.addDisk))
	mux.HandleFunc("DELETE /disks/{number}", c.onDisk(func(n uint32, _ *http.Request) (any, error) { return struct{}{}, m.RemoveDisk(n) }))
	mux.HandleFunc("POST /disks/{number}/move", c.onDisk(func(n uint32, _ *http.Request) (any, error) {
		moved, err := m.MoveDisk(n)
		return diskAnswer{Number: moved}, err
	}))
	mux.HandleFunc("POST /disks/{number}/grow", c.onDisk(c.grow))
	mux.HandleFunc("POST /disks/{number}/clone", c.onDisk(c.clone))
	mux.HandleFunc("POST /options", with(c.options))
	mux.HandleFunc("POST /shares", with(func(s SMBShare) (any, error) { return struct{}{}, m.AddShare(s) }))
	mux.HandleFunc("POST /targets", with(c.addTarget))
	mux.HandleFunc("POST /services", with(func(s serviceJSON) (any, error) { return struct{}{}, m.AddService(s.spec()) }))
	mux.HandleFunc("POST /servers", with(c.server))
	mux.HandleFunc("POST /files", with(c.plant))
	mux.HandleFunc("DELETE /files", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, m.Remove(r.URL.Query().Get("path")))
	})
	mux.HandleFunc("GET /files", c.files)
	mux.HandleFunc("POST /faults", with(c.inject))
	mux.HandleFunc("GET /faults/{id}", c.onFault(func(*Injected) {}))
	mux.HandleFunc("POST /faults/{id}/release", c.onFault((*Injected).Release))
	mux.HandleFunc("DELETE /faults/{id}", c.onFault((*Injected).Remove))
	return mux
}

type controller struct {
	m      *Machine
	mu     sync.Mutex
	last   int
	faults map[int]*Injected
}

// answer writes a result, or an error: 404 for a missing object, 409 for an error that
// Windows refuses, 400 for a request that cannot be.
func answer(w http.ResponseWriter, result any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := http.StatusBadRequest
		var errno win32.Errno
		switch {
		case errors.As(err, &errno) && (errno == win32.ErrorFileNotFound || errno == win32.ErrorPathNotFound):
			status = http.StatusNotFound
		case errors.As(err, &errno):
			status = http.StatusConflict
		}
		w.WriteHeader(status)
		result = struct{ Error string }{err.Error()}
	}
	_ = json.NewEncoder(w).Encode(result) // the client has gone
}

// read decodes a request's body and rejects unknown fields.
func read(r *http.Request, into any) error {
	decoder := json.NewDecoder(io.LimitReader(r.Body, mostBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("the request: %w", err)
	}
	return nil
}

// with makes a handler of a function that takes the request's body.
func with[T any](f func(T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request T
		if err := read(r, &request); err != nil {
			answer(w, nil, err)
			return
		}
		result, err := f(request)
		answer(w, result, err)
	}
}

// duration is a time such as "250ms" in JSON.
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

type diskAnswer struct{ Number uint32 }

type diskJSON struct {
	Serial, Page83     string
	Size               int64
	SectorSize, Bus    uint32
	Location           *win32.SCSIAddress
	AddressNeedsRead   bool
	Offline, ReadOnly  bool
	Style, FileSystem  string
	DataSize           int64
	DriveLetter, Noise bool
	Bytes              map[int64]string // hexadecimal
	ArrivesAfter       duration
	NeedsRescan        bool
	Broken             uint32
}

func (d diskJSON) spec() (DiskSpec, error) {
	spec := DiskSpec{
		Serial: d.Serial, Page83: d.Page83, Size: d.Size, SectorSize: d.SectorSize, Bus: d.Bus, Location: d.Location,
		AddressNeedsRead: d.AddressNeedsRead, Offline: d.Offline, ReadOnly: d.ReadOnly, Style: d.Style, FileSystem: d.FileSystem,
		DataSize: d.DataSize, DriveLetter: d.DriveLetter, Noise: d.Noise, ArrivesAfter: time.Duration(d.ArrivesAfter),
		NeedsRescan: d.NeedsRescan, Broken: win32.Errno(d.Broken), Bytes: map[int64][]byte{},
	}
	for offset, digits := range d.Bytes {
		bytes, err := hex.DecodeString(digits)
		if err != nil {
			return DiskSpec{}, fmt.Errorf("bytes at %d: %w", offset, err)
		}
		spec.Bytes[offset] = bytes
	}
	return spec, nil
}

func (c *controller) addDisk(request diskJSON) (any, error) {
	spec, err := request.spec()
	if err != nil {
		return nil, err
	}
	number, err := c.m.AddDisk(spec)
	return diskAnswer{Number: number}, err
}

func (c *controller) onDisk(f func(number uint32, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.ParseUint(r.PathValue("number"), 10, 32)
		if err != nil {
			answer(w, nil, err)
			return
		}
		result, err := f(uint32(number), r)
		answer(w, result, err)
	}
}

func (c *controller) grow(number uint32, r *http.Request) (any, error) {
	var request struct{ Size int64 }
	if err := read(r, &request); err != nil {
		return nil, err
	}
	return struct{}{}, c.m.GrowDisk(number, request.Size)
}

func (c *controller) clone(number uint32, r *http.Request) (any, error) {
	var request struct{ Serial string }
	if err := read(r, &request); err != nil {
		return nil, err
	}
	clone, err := c.m.CloneDisk(number, request.Serial)
	return diskAnswer{Number: clone}, err
}

// options changes those that are given.
func (c *controller) options(request struct {
	VolumeDelay, DeviceDelay            *duration
	ListDelay, FormatDelay, SessionBusy *duration
	DeletePending                       *bool
	UsableLag                           *int
	SANPolicy                           *SANPolicy
	BIOSSerial                          *string
}) (any, error) {
	c.m.SetOptions(func(o *Options) {
		set(&o.UsableLag, request.UsableLag)
		set(&o.SANPolicy, request.SANPolicy)
		set(&o.BIOSSerial, request.BIOSSerial)
		set(&o.VolumeDelay, (*time.Duration)(request.VolumeDelay))
		set(&o.DeviceDelay, (*time.Duration)(request.DeviceDelay))
		set(&o.ListDelay, (*time.Duration)(request.ListDelay))
		set(&o.FormatDelay, (*time.Duration)(request.FormatDelay))
		set(&o.SessionBusy, (*time.Duration)(request.SessionBusy))
		set(&o.DeletePending, request.DeletePending)
	})
	return struct{}{}, nil
}

func set[T any](option, value *T) {
	if value != nil {
		*option = *value
	}
}

type targetJSON struct {
	Address                    string
	Port                       uint32
	IQN                        string
	User, Secret, MutualSecret string
	LUNs                       []diskJSON
}

func (c *controller) addTarget(request targetJSON) (any, error) {
	spec := ISCSITarget{
		Portal: api.Portal{Address: request.Address, Port: request.Port}, IQN: request.IQN,
		User: request.User, Secret: request.Secret, MutualSecret: request.MutualSecret,
	}
	for _, lun := range request.LUNs {
		disk, err := lun.spec()
		if err != nil {
			return nil, err
		}
		spec.LUNs = append(spec.LUNs, disk)
	}
	return struct{}{}, c.m.AddTarget(spec)
}

type serviceJSON struct {
	Name, DisplayName     string
	StartType             uint32
	Running               bool
	DependsOn             []string
	StartDelay, StopDelay duration
	StartError            uint32
}

func (s serviceJSON) spec() ServiceSpec {
	return ServiceSpec{
		Name: s.Name, DisplayName: s.DisplayName, StartType: s.StartType, Running: s.Running, DependsOn: s.DependsOn,
		StartDelay: time.Duration(s.StartDelay), StopDelay: time.Duration(s.StopDelay), StartError: win32.Errno(s.StartError),
	}
}

// server changes whether an SMB server or an iSCSI target is in reach.
func (c *controller) server(request struct {
	Server, IQN string
	Reachable   bool
}) (any, error) {
	if request.Server != "" {
		c.m.SetServerReachable(request.Server, request.Reachable)
	}
	if request.IQN != "" {
		c.m.SetTargetReachable(request.IQN, request.Reachable)
	}
	return struct{}{}, nil
}

// plant makes a file, directory, link or junction.
func (c *controller) plant(request struct {
	Path, Kind, Target string
	Size               int64
}) (any, error) {
	switch request.Kind {
	case "directory":
		return struct{}{}, c.m.MkdirAll(request.Path)
	case "file":
		return struct{}{}, c.m.WriteFile(request.Path, request.Size)
	case "symlink":
		return struct{}{}, c.m.Symlink(request.Path, request.Target, true)
	case "junction":
		return struct{}{}, c.m.Junction(request.Path, request.Target)
	}
	return nil, fmt.Errorf("kind %q is not one of directory, file, symlink, junction", request.Kind)
}

// files describes a path, and lists a directory.
func (c *controller) files(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Query().Get("path")
	info, err := c.m.Lstat(path)
	if err != nil {
		answer(w, nil, err)
		return
	}
	result := struct {
		win32.FileInfo
		Target  string
		Entries []string
	}{FileInfo: info}
	if target, err := c.m.Readlink(path); err == nil {
		result.Target = target.Target()
	} else if result.Entries, err = c.m.List(path); err != nil {
		answer(w, nil, err)
		return
	}
	answer(w, result, nil)
}

type faultJSON struct {
	Call, Target string
	Changing     bool
	At, Times    int
	Action       Action
	Errno        uint32
	For          duration
}

type faultAnswer struct{ ID, Hits, Waiting int }

func (c *controller) inject(request faultJSON) (any, error) {
	fault := Fault{
		Call: request.Call, Target: request.Target, Changing: request.Changing, At: request.At, Times: request.Times,
		Action: request.Action, Errno: win32.Errno(request.Errno), For: time.Duration(request.For),
	}
	switch fault.Action {
	case Fail, FailAfter:
		if fault.Errno == 0 {
			return nil, errors.New("a fault that fails needs an errno")
		}
	case Pretend, Delay, Hang, DieBefore, DieAfter:
	default:
		return nil, fmt.Errorf("action %q is unknown", fault.Action)
	}
	injected := c.m.Inject(fault)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	c.faults[c.last] = injected
	return faultAnswer{ID: c.last}, nil
}

func (c *controller) onFault(f func(*Injected)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.Atoi(r.PathValue("id"))
		c.mu.Lock()
		injected := c.faults[id]
		c.mu.Unlock()
		if err != nil || injected == nil {
			answer(w, nil, fmt.Errorf("fault %q: %w", r.PathValue("id"), win32.ErrorFileNotFound))
			return
		}
		f(injected)
		answer(w, faultAnswer{ID: id, Hits: injected.Hits(), Waiting: injected.Waiting()}, nil)
	}
}
