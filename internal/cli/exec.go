package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

const execHelp = `Run a command in a container of a pod, or with volumes of its own.

exec POD -- COMMAND runs a command in a container that runs: it sees the container's
files, volumes and processes, and has its user, rights and environment. Standard
input is passed on with -i, signals always, and the exit code is the command's. With
-t the command has a terminal.

exec --volume CLAIM:/PATH -- COMMAND runs a command of this machine with volumes of
a running host at its paths. The command has its own mount namespace: other processes do not see the volumes
at these paths, and the paths need not exist. Standard input, terminal, signals,
environment and working directory are this command's, and so is the exit code.
It also has its own process namespace. When the command ends, or this process is
killed, its child processes end, and the volumes are released.`

// volumeFlags are the volumes of exec and hold.
type volumeFlags struct {
	volumes, inline []string
	fsGroup         int64
	timeout         time.Duration
}

func (v *volumeFlags) bind(flags *pflag.FlagSet) {
	flags.StringArrayVar(&v.volumes, "volume", nil,
		"`CLAIM:/PATH[:ro]`: a claim and where its volume is wanted; may be repeated")
	flags.StringArrayVar(&v.inline, "inline", nil,
		"`DRIVER:/PATH[:ro][:KEY=VALUE,…]`: an inline volume with its attributes; may be repeated")
	flags.Int64Var(&v.fsGroup, "fs-group", 0, "`GROUP` id that may write to the volumes, as a pod's fsGroup")
	flags.DurationVar(&v.timeout, "timeout", 2*time.Minute, "how long to wait for the volumes")
}

// request is the hold of the volumes, and the paths where they are to be mounted.
func (v *volumeFlags) request(command *cobra.Command) (request api.HoldRequest, targets []string, err error) {
	if command.Flags().Changed("fs-group") {
		request.FSGroup = &v.fsGroup
	}
	if v.timeout < time.Second {
		return request, nil, usageErrorf("--timeout %s is below a second", v.timeout)
	}
	request.TimeoutSeconds = int64(v.timeout / time.Second)
	for _, text := range v.volumes {
		claim, target, options, err := cutVolume("--volume", text)
		if err != nil {
			return request, nil, err
		}
		if len(options) > 0 && options[0] != "ro" && options[0] != "rw" || len(options) > 1 {
			return request, nil, usageErrorf("--volume %q: after the path, there can only be :ro", text)
		}
		request.Volumes = append(request.Volumes, api.HoldVolume{Claim: claim, ReadOnly: len(options) > 0 &&
			options[0] == "ro"})
		targets = append(targets, target)
	}
	for _, text := range v.inline {
		volume, target, err := inlineVolume(text)
		if err != nil {
			return request, nil, err
		}
		request.Volumes = append(request.Volumes, volume)
		targets = append(targets, target)
	}
	if len(request.Volumes) == 0 {
		return request, nil, usageErrorf("no volume is given: --volume CLAIM:/PATH")
	}
	for i := range request.Volumes {
		request.Volumes[i].Name = fmt.Sprintf("volume-%d", i)
	}
	return request, targets, nil
}

func cutVolume(flag, text string) (source, target string, options []string, err error) {
	words := strings.Split(text, ":")
	if len(words) < 2 || words[0] == "" || !filepath.IsAbs(words[1]) {
		return "", "", nil, usageErrorf("%s %q is not NAME:/ABSOLUTE/PATH", flag, text)
	}
	target = filepath.Clean(words[1])
	if target == "/" {
		return "", "", nil, usageErrorf("%s %q: a volume cannot be mounted at /", flag, text)
	}
	return words[0], target, words[2:], nil
}

func inlineVolume(text string) (volume api.HoldVolume, target string, err error) {
	driver, target, options, err := cutVolume("--inline", text)
	if err != nil {
		return volume, "", err
	}
	volume.CSI = &corev1.CSIVolumeSource{Driver: driver}
	if len(options) > 0 && (options[0] == "ro" || options[0] == "rw") {
		volume.ReadOnly = options[0] == "ro"
		options = options[1:]
	}
	if len(options) == 0 {
		return volume, target, nil
	}
	volume.CSI.VolumeAttributes = map[string]string{}
	for pair := range strings.SplitSeq(strings.Join(options, ":"), ",") { // a value may have a colon
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return volume, "", usageErrorf("--inline %q: %q is not KEY=VALUE", text, pair)
		}
		volume.CSI.VolumeAttributes[key] = value
	}
	return volume, target, nil
}

// execConfig are the flags of exec.
type execConfig struct {
	hostClient
	volumeFlags
	pod  execPod
	name string
}

func newExecCommand() *cobra.Command {
	c := execConfig{}
	command := &cobra.Command{
		Use:     "exec POD -- COMMAND… | --volume CLAIM:/PATH… -- COMMAND…",
		Short:   "Run a command in a pod's container, or with volumes",
		Long:    execHelp,
		Example: "  holdfast exec web -- cat /srv/data/log\n  holdfast exec -it web -c proxy -- sh\n  holdfast exec --volume data:/srv/data -- pg_dump -f /srv/data/dump\n  holdfast exec --volume data:/mnt:ro -- bash",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE:    func(command *cobra.Command, given []string) error { return c.run(command, given) },
	}
	flags := command.Flags()
	flags.SetInterspersed(false) // the flags behind the command are the command's
	c.hostClient.bind(flags)
	c.bindNamespace(flags)
	c.volumeFlags.bind(flags)
	flags.StringVarP(&c.pod.container, "container", "c", "", "`NAME` of the pod's container, if it has several")
	flags.BoolVarP(&c.pod.stdin, "stdin", "i", false, "in a pod: pass standard input to the command")
	flags.BoolVarP(&c.pod.terminal, "tty", "t", false, "in a pod: the command has a terminal")
	flags.StringVar(&c.name, "name", "", "`NAME` of the pod that 'holdfast get pods' shows for it (default: exec- and something random)")
	c.completeFlags(command)
	return command
}

func (c *execConfig) run(command *cobra.Command, given []string) error {
	if len(c.volumes) == 0 && len(c.inline) == 0 {
		return c.runInPod(command, given)
	}
	if c.pod.isSet() {
		return usageErrorf("-c, -i and -t are of exec POD; a command with volumes has this command's input and terminal")
	}
	request, targets, err := c.request(command)
	if err != nil {
		return err
	}
	if runtime.GOOS == "linux" && os.Geteuid() != 0 {
		return errors.New("this command makes a mount namespace and needs root: run it with sudo")
	}
	request.Namespace, request.Name = c.namespace, c.name
	if request.Name == "" {
		request.Name = "exec-" + strings.ToLower(rand.Text()[:8])
	}
	request.Holder = fmt.Sprintf("holdfast exec (process %d): %.60s", os.Getpid(), strings.Join(given, " "))
	root, err := c.directory()
	if err != nil {
		return err
	}
	client := c.dial()
	defer client.Close()
	stop := showSteps(command, client, request)
	defer stop()
	input, isFile := command.InOrStdin().(*os.File)
	code, err := host.Exec(command.Context(), client, host.ExecOptions{
		Root: root, Hold: request, Targets: targets, Command: given,
		Stdin: command.InOrStdin(), Stdout: command.OutOrStdout(), Stderr: command.ErrOrStderr(),
		Terminal: isFile && term.IsTerminal(int(input.Fd())), Starting: stop,
		Warn: func(text string) { command.PrintErrln("Warning: " + printable(text)) },
	})
	if err == nil && code != 0 {
		return ExitError{Code: code}
	}
	if err != nil && code != 0 {
		command.PrintErrf("holdfast: %v\n", err)
		return ExitError{Code: code}
	}
	return err
}

// showSteps shows the steps of a hold on a terminal until stop is called.
func showSteps(command *cobra.Command, client *api.Client, request api.HoldRequest) (stop func()) {
	progress := newDisplay(command.ErrOrStderr())
	if progress.columns == nil {
		return func() {}
	}
	about := map[api.Applied]bool{{Kind: "Pod", Key: store.Key(request.Namespace, request.Name)}: true}
	for _, volume := range request.Volumes {
		about[api.Applied{Kind: "PersistentVolumeClaim", Key: store.Key(request.Namespace, volume.Claim)}] = true
	}
	ctx, cancel := context.WithCancel(command.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		after, err := client.JournalSequence(ctx)
		if err != nil {
			return // the request itself returns the error
		}
		_ = client.WatchJournal(ctx, after, func(entry journal.Entry) error {
			if event, ok := stepOf(entry, about); ok {
				progress.observe(event)
			}
			return nil
		})
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-ended
		progress.close()
	})
}
