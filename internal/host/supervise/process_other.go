//go:build !linux

package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

// process is empty: the host supervises drivers on Linux only.
type process struct{}

func launch(*exec.Cmd, string) (*process, error) { return nil, errors.ErrUnsupported }
func adopt(processRecord) (*process, error)      { return nil, nil }
func (p *process) PID() int                      { return 0 }
func (p *process) Start() uint64                 { return 0 }
func (p *process) exited(context.Context) error  { return errors.ErrUnsupported }
func (p *process) reap() string                  { return "" }
func (p *process) signal(bool) error             { return errors.ErrUnsupported }
func (p *process) close()                        {}
func trusted(string, os.FileInfo) error          { return nil }

// chownTo does nothing: on this system a directory has an access list.
func chownTo(string, string) error { return nil }
