package register

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Status is the state of a registration.
type Status struct {
	// Socket is the path of the bound socket; "" if there is none.
	Socket string
	// Registered is the kubelet's last result for that socket.
	Registered bool
	// Since is when the socket was bound, or when Registered changed.
	Since time.Time
	// Refusal is the error with which the kubelet refused the driver.
	Refusal string
	// Err is the reason why the socket is missing.
	Err error
}

// Status returns the state of the registration.
func (s *Server) Status() Status {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return s.status.Status
}

// Describe returns Status in words, or an error while the driver is not registered.
func (s *Server) Describe() (words string, err error) {
	status := s.Status()
	age := time.Since(status.Since).Round(time.Second)
	switch {
	case status.Err != nil:
		return "", fmt.Errorf("no socket for the kubelet: %w", status.Err)
	case status.Registered:
		return fmt.Sprintf("registered for %v", age), nil
	case status.Refusal != "":
		return "", fmt.Errorf("refused by the kubelet, which retries: %s", status.Refusal)
	case status.Socket != "":
		return "", fmt.Errorf("offered at %s for %v; the kubelet has not registered it yet", status.Socket, age)
	}
	return "", errors.New("not offered to the kubelet yet")
}

// record guards the current Status.
type record struct {
	mu sync.Mutex
	Status
	lastCall time.Time // of the kubelet, or when the socket was bound
	pending  bool      // the kubelet called GetInfo and has not reported the result yet
}

func (r *record) offer(socket string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A refusal stays until the next result, so that an operator can see it.
	r.Status = Status{Socket: socket, Since: time.Now(), Refusal: r.Refusal}
	r.lastCall, r.pending = r.Since, false
}

func (r *record) withdraw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Status = Status{Since: time.Now(), Refusal: r.Refusal}
	r.pending = false
}

func (r *record) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Err = err
}

func (r *record) asked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastCall, r.pending = time.Now(), true
}

func (r *record) result(registered bool, refusal string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Registered != registered {
		r.Since = time.Now()
	}
	r.Registered, r.Refusal = registered, refusal
	r.lastCall, r.pending = time.Now(), false
}

// silentFor reports whether the kubelet made no call for longer than d.
func (r *record) silentFor(d time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending {
		d = max(d, resultTimeout)
	}
	return time.Since(r.lastCall) > d
}

// answers is the service the kubelet calls.
type answers struct {
	registration.UnimplementedRegistrationServer
	options Options
	status  *record
}

func (a *answers) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	a.status.asked()
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: a.options.Driver,
		Endpoint: a.options.Endpoint, SupportedVersions: []string{version},
	}, nil
}

// longestRefusal bounds the kubelet's reason in bytes: the log and each answer about the
// registration have it.
const longestRefusal = 1 << 10

// NotifyRegistrationStatus records and logs the result. After a refusal the kubelet
// retries by itself, so that exiting would only lose the registration.
func (a *answers) NotifyRegistrationStatus(
	ctx context.Context, s *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		a.status.result(true, "")
		a.options.Logger.InfoContext(ctx, "registered")
	} else {
		refusal := strings.ToValidUTF8(s.GetError()[:min(len(s.GetError()), longestRefusal)], "")
		if refusal == "" {
			refusal = "it gave no reason"
		}
		a.status.result(false, refusal)
		a.options.Logger.WarnContext(ctx, "registration refused; the kubelet will retry", "error", refusal)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
