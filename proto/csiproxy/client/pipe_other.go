//go:build !windows

package client

import (
	"context"
	"errors"
	"net"
)

var errNoPipes = errors.New("named pipes are of Windows; another system needs Options.Dialer")

func dialPipe(context.Context, string, ServerCheck) (net.Conn, error) { return nil, errNoPipes }

func listPipes() ([]string, error) { return nil, errNoPipes }
