package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/holdfast-csi/holdfast/test/machine/protocol"
)

// agent answers over the serial port.
type agent struct {
	mu  sync.Mutex
	out *json.Encoder
}

func serveAgent(ctx context.Context) error {
	port, err := os.OpenFile(protocol.Port, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	_ = os.Remove(protocol.Socket) // of an agent that was killed
	reports, err := new(net.ListenConfig).ListenPacket(ctx, "unixgram", protocol.Socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(protocol.Socket, 0o666); err != nil { //nolint:gosec // every program of the machine reports
		return err
	}
	a := &agent{out: json.NewEncoder(port)}
	if err := a.send(protocol.Message{Hello: strings.TrimSpace(string(boot))}); err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- a.forward(reports) }()
	go func() { ended <- a.answer(ctx, port) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (a *agent) send(m protocol.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Encode(m)
}

// forward sends the reports of the machine's programs.
func (a *agent) forward(reports net.PacketConn) error {
	data := make([]byte, 4096)
	for {
		n, _, err := reports.ReadFrom(data)
		if err != nil {
			return err
		}
		if err := a.send(protocol.Message{Report: string(data[:n])}); err != nil {
			return err
		}
	}
}

// answer starts each requested program at once: one that hangs keeps no other.
func (a *agent) answer(ctx context.Context, port *os.File) error {
	requests := json.NewDecoder(port)
	for {
		var r protocol.Request
		if err := requests.Decode(&r); err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		go func() { _ = a.send(protocol.Message{Response: perform(ctx, r)}) }()
	}
}

func perform(ctx context.Context, r protocol.Request) *protocol.Response {
	if len(r.Command) == 0 {
		return &protocol.Response{ID: r.ID, Code: -1, Stderr: []byte("no command")}
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...) //nolint:gosec // that is what the agent is for
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(r.Stdin), &stdout, &stderr
	command.Env = append(os.Environ(), "HOME=/root")
	err := command.Run()
	response := &protocol.Response{ID: r.ID, Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		response.Code = exit.ExitCode()
	} else if err != nil {
		response.Code = -1
	}
	if response.Code == -1 {
		response.Stderr = append(response.Stderr, err.Error()...)
	}
	return response
}

// report tells the laboratory something. It returns when the agent has it.
func report(format string, values ...any) error {
	connection, err := net.Dial("unixgram", protocol.Socket) //nolint:noctx // a local socket answers at once
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(connection, format, values...)
	return errors.Join(err, connection.Close())
}
