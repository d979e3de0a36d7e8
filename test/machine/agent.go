package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/holdfast-csi/holdfast/test/machine/protocol"
)

// agent is the connection to the agent of one boot.
type agent struct {
	connection net.Conn
	// hello is closed when the agent is there, gone when the connection ended.
	hello, gone chan struct{}

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan *protocol.Response
	// reports are what programs of the machine said, in order; more says that
	// there may be more of them.
	reports []string
	more    chan struct{}
}

func newAgent(connection net.Conn) *agent {
	a := &agent{connection: connection, hello: make(chan struct{}), gone: make(chan struct{}),
		waiting: map[uint64]chan *protocol.Response{}, more: make(chan struct{}, 1)}
	go a.listen()
	return a
}

func (a *agent) close() {
	_ = a.connection.Close()
	<-a.gone
}

// listen hands messages out until the connection ends.
func (a *agent) listen() {
	defer close(a.gone)
	messages := json.NewDecoder(a.connection)
	greeted := false
	for {
		var m protocol.Message
		if err := messages.Decode(&m); err != nil {
			return
		}
		switch {
		case m.Hello != "" && !greeted:
			greeted = true
			close(a.hello)
		case m.Response != nil:
			a.answered(m.Response)
		case m.Report != "":
			a.reported(m.Report)
		}
	}
}

func (a *agent) answered(r *protocol.Response) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting, ok := a.waiting[r.ID]; ok {
		delete(a.waiting, r.ID)
		waiting <- r
	}
}

func (a *agent) reported(text string) {
	a.mu.Lock()
	a.reports = append(a.reports, text)
	a.mu.Unlock()
	select {
	case a.more <- struct{}{}:
	default:
	}
}

func (a *agent) run(ctx context.Context, stdin []byte, command []string) (*protocol.Response, error) {
	response := make(chan *protocol.Response, 1)
	a.mu.Lock()
	a.next++
	id := a.next
	a.waiting[id] = response
	err := json.NewEncoder(a.connection).Encode(protocol.Request{ID: id, Command: command, Stdin: stdin})
	a.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("ask the machine to run %q: %w", command, err)
	}
	select {
	case r := <-response:
		return r, nil
	case <-a.gone:
		return nil, fmt.Errorf("run %q: the machine went off meanwhile", command)
	case <-ctx.Done():
		return nil, fmt.Errorf("run %q on the machine: %w", command, ctx.Err())
	}
}

// Result is the end of a program on the machine.
type Result struct {
	Code           int
	Stdout, Stderr string
}

var errOff = errors.New("the machine is off")

// Run runs a program on the machine. That it fails is no error.
func (m *Machine) Run(ctx context.Context, command ...string) (Result, error) {
	return m.run(ctx, nil, command)
}

func (m *Machine) run(ctx context.Context, stdin []byte, command []string) (Result, error) {
	if m.power == nil {
		return Result{}, errOff
	}
	r, err := m.power.agent.run(ctx, stdin, command)
	if err != nil {
		return Result{}, err
	}
	return Result{Code: r.Code, Stdout: string(r.Stdout), Stderr: string(r.Stderr)}, nil
}

// Shell runs commands with bash, which stops at the first that fails, and returns
// their standard output. A failure is an error with the standard error.
func (m *Machine) Shell(ctx context.Context, script string) (string, error) {
	result, err := m.Run(ctx, "bash", "-euo", "pipefail", "-c", script)
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("on the machine, %s: exit code %d: %s", strings.TrimSpace(script), result.Code, result.Stderr)
	}
	return result.Stdout, err
}

// Put writes a file of the machine, durably. Its directory is made if it is missing.
func (m *Machine) Put(ctx context.Context, path string, content []byte) error {
	result, err := m.run(ctx, content, []string{"bash", "-euc", `mkdir -p "$(dirname "$1")"; cat >"$1"; sync "$1"`, "put", path})
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("write %s of the machine: %s", path, result.Stderr)
	}
	return err
}

// Get reads a file of the machine.
func (m *Machine) Get(ctx context.Context, path string) ([]byte, error) {
	text, err := m.Shell(ctx, "cat '"+path+"'")
	return []byte(text), err
}

// Reports are those of the machine's programs since it was started, in order.
func (m *Machine) Reports() []string {
	if m.power == nil {
		return nil
	}
	a := m.power.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.reports...)
}

// Await returns when the reports fulfil the condition.
func (m *Machine) Await(ctx context.Context, condition func(reports []string) bool) error {
	for !condition(m.Reports()) {
		if m.power == nil {
			return errOff
		}
		select {
		case <-m.power.agent.more:
		case <-m.power.agent.gone:
			return errors.New("the machine went off before it had reported what is awaited")
		case <-ctx.Done():
			return fmt.Errorf("the machine did not report what is awaited: %w", ctx.Err())
		}
	}
	return nil
}
