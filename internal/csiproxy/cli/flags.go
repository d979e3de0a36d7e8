package cli

import (
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/host"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/service"
)

// config are the flags of run.
type config struct {
	version        string // of this program
	machine        Machine
	kubeletPath    string
	workingDirs    []string
	requirePrivacy bool
	services       []string
	sids           []string
	exitIfTaken    bool
	stateDir       string
	metricsAddress string
	windowsService bool
	serviceName    string
	log            logConfig
}

// logConfig are the flags of the log.
type logConfig struct {
	format, level, file string
	verbosity           int
	toStderr            bool
}

// drain bounds the time for running calls at a stop, stopTime that of the whole stop.
const (
	drain    = 10 * time.Second
	stopTime = 2 * drain
)

func (c *config) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.StringVar(&c.kubeletPath, "kubelet-path", `C:\var\lib\kubelet`,
		"directory of the kubelet; paths of callers must be below it, or below a working directory")
	f.StringArrayVar(&c.workingDirs, "working-dir", nil,
		"further `directory` that paths of callers may be below (may be repeated)")
	f.BoolVar(&c.requirePrivacy, "require-privacy", true,
		"ask for encryption on SMB mappings; servers without SMB 3 encryption need false")
	f.StringSliceVar(&c.services, "service-allow", []string{"MSiSCSI"},
		"`names` of the services that callers may query, start and stop; any other does not exist for them")
	f.StringArrayVar(&c.sids, "allow-sid", nil,
		"`SID` that may open the pipes in addition to SYSTEM and Administrators (may be repeated); such an account has full control of the machine")
	f.BoolVar(&c.exitIfTaken, "exit-if-taken", false,
		"end with an error when other processes serve all pipes at the start, instead of waiting until one is free")
	f.StringVar(&c.stateDir, "state-dir", host.StateDir,
		"`directory` for state that Windows does not report, such as the users of an SMB mapping")
	f.StringVar(&c.metricsAddress, "metrics-bind-address", "",
		"`host:port` of /metrics, /healthz and /readyz; none without it")
	f.BoolVar(&c.windowsService, "windows-service", false,
		"run as a Windows service; only the service control manager sets it, see install")
	if c.machine.Flags != nil {
		c.machine.Flags(f)
	}
	f.AddFlagSet(c.log.flags())
	f.AddFlagSet(nameFlag(&c.serviceName))
	return f
}

func (l *logConfig) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("log", pflag.ContinueOnError)
	f.StringVar(&l.format, "log-format", "auto", "text, json, or auto: text on a terminal, JSON otherwise")
	f.StringVar(&l.level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&l.file, "log-file", "", fmt.Sprintf("`file` for the log instead of standard error; at %d MiB it "+
		"is renamed to FILE.old, and a new one begins", logLimit>>20))
	f.IntVarP(&l.verbosity, "v", "v", 0, "upstream's verbosity: 4 and more is --log-level=debug")
	f.BoolVar(&l.toStderr, "logtostderr", true, "upstream's; --log-file decides")
	for _, upstreams := range []string{"v", "logtostderr"} {
		f.Lookup(upstreams).Hidden = true
	}
	return f
}

func nameFlag(name *string) *pflag.FlagSet {
	f := pflag.NewFlagSet("name", pflag.ContinueOnError)
	f.StringVar(name, "service-name", service.Name, "`name` of the Windows service")
	return f
}

// check rejects an invalid command line before any step.
func (c *config) check() error {
	if _, err := paths.New(c.kubeletPath, c.workingDirs...); err != nil {
		return usageErrorf("--kubelet-path or --working-dir: %w", err)
	}
	if _, err := server.Descriptor(c.sids); err != nil {
		return usageErrorf("--allow-sid: %w", err)
	}
	if _, err := c.log.logger(discard{}); err != nil {
		return usageError{err}
	}
	if c.metricsAddress != "" {
		if _, _, err := net.SplitHostPort(c.metricsAddress); err != nil {
			return usageErrorf("--metrics-bind-address: %w", err)
		}
	}
	if c.machine.Check != nil {
		if err := c.machine.Check(); err != nil {
			return usageError{err}
		}
	}
	return nil
}

// arguments returns the command line that starts the service with the flags that were
// given. It omits defaults, which may change with an upgrade.
func (c *config) arguments(given *pflag.FlagSet) ([]string, error) {
	arguments := []string{"run", "--windows-service"}
	var err error
	given.Visit(func(flag *pflag.Flag) {
		if flag.Name == "windows-service" {
			return
		}
		if flag.Name == "log-file" { // the service's directory is not this one
			if c.log.file, err = filepath.Abs(c.log.file); err != nil {
				return
			}
			arguments = append(arguments, "--log-file="+c.log.file)
			return
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			for _, value := range list.GetSlice() {
				arguments = append(arguments, "--"+flag.Name+"="+value)
			}
			return
		}
		arguments = append(arguments, "--"+flag.Name+"="+flag.Value.String())
	})
	return arguments, err
}
