//go:build kubernetes

package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-csi/holdfast/internal/cli"
)

// programsVariable names the directory of the cluster's programs.
const programsVariable = "HOLDFAST_KUBERNETES"

// processVariable makes this executable run the command holdfast: a test starts it as a
// process that it can kill.
const processVariable = "HOLDFAST_MISHAPS_PROCESS"

// shared is the configuration of the API server of all tests, sharedFile its kubeconfig.
var (
	shared     *rest.Config
	sharedFile string
)

func TestMain(m *testing.M) {
	if os.Getenv(processVariable) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := cli.Run(ctx, "test", os.Args[1:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	programs := os.Getenv(programsVariable)
	if programs == "" {
		return 0, fmt.Errorf("%s is not set: it names the directory of the programs that `make kubernetes-binaries` builds", programsVariable)
	}
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig, down, err := controlPlane(filepath.Join(programs, "cluster"), dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, down()) }()
	if shared, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return 0, err
	}
	shared.QPS, sharedFile = -1, kubeconfig
	return m.Run(), nil
}

// controlPlane starts a control plane without nodes. It ends when this process ends,
// also after a crash: its standard input is a pipe from this process.
func controlPlane(program, dir string) (kubeconfig string, down func() error, err error) {
	cmd := exec.Command(program, "run", "-dir", dir, "-nodes", "0")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start the control plane: %w", err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(errors.New("the control plane did not start"), stdin.Close(), cmd.Wait())
	}
	down = func() error {
		err := stdin.Close()
		_, _ = io.Copy(io.Discard, output)
		return errors.Join(err, cmd.Wait())
	}
	return strings.TrimSpace(line), down, nil
}
