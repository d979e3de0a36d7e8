package register

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Status is what has become of a registration.
type Status struct {
	// Socket is the file that is offered; "" while there is none.
	Socket string
	// Registered is the kubelet's last verdict on that socket.
	Registered bool
	// Since is when the socket was offered, or when Registered changed.
	Since time.Time
	// Refusal is why the kubelet did not register the driver, in its words.
	Refusal string
	// Err is why there is no socket.
	Err error
}

// Status tells what has become of the registration.
func (s *Server) Status() Status {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return s.status.Status
}

// Tell is Status in words, and an error while the driver is not registered.
func (s *Server) Tell() (words string, err error) {
	status := s.Status()
	age := time.Since(status.Since).Round(time.Second)
	switch {
	case status.Err != nil:
		return "", fmt.Errorf("no socket for the kubelet: %w", status.Err)
	case status.Registered:
		return fmt.Sprintf("registered for %v", age), nil
	case status.Refusal != "":
		return "", fmt.Errorf("refused by the kubelet, which tries again: %s", status.Refusal)
	case status.Socket != "":
		return "", fmt.Errorf("offered at %s for %v; the kubelet has not registered it yet", status.Socket, age)
	}
	return "", errors.New("not offered to the kubelet yet")
}

// record is a Status that changes.
type record struct {
	mu sync.Mutex
	Status
	heard   time.Time // when the kubelet last called, or the socket was offered
	pending bool      // it asked, and gave no verdict yet
}

func (r *record) offer(socket string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A refusal stays until there is another verdict: people need to see it.
	r.Status = Status{Socket: socket, Since: time.Now(), Refusal: r.Refusal}
	r.heard, r.pending = r.Since, false
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
	r.heard, r.pending = time.Now(), true
}

func (r *record) verdict(registered bool, refusal string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Registered != registered {
		r.Since = time.Now()
	}
	r.Registered, r.Refusal = registered, refusal
	r.heard, r.pending = time.Now(), false
}

// silent tells whether the kubelet has let hear nothing for longer than patience.
func (r *record) silent(patience time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending {
		patience = max(patience, verdictTime)
	}
	return time.Since(r.heard) > patience
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

// NotifyRegistrationStatus only tells people: after a refusal the kubelet
// itself tries again, so ending would lose the registration for good.
func (a *answers) NotifyRegistrationStatus(ctx context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		a.status.verdict(true, "")
		a.options.Logger.InfoContext(ctx, "registered")
	} else {
		refusal := s.GetError()
		if refusal == "" {
			refusal = "it gave no reason"
		}
		a.status.verdict(false, refusal)
		a.options.Logger.WarnContext(ctx, "registration refused; the kubelet will try again", "error", refusal)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
