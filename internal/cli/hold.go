package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
)

const holdHelp = `Mount volumes at directories of this machine until 'holdfast release NAME'.

The directories must exist and be empty. Every process on the machine sees the
volumes there, also after a restart of the host and after a reboot. Repeating
the same hold changes nothing. 'holdfast get pods' shows it as a pod.`

// holdConfig are the flags of hold and release.
type holdConfig struct {
	hostClient
	volumeFlags
	untilReboot bool
	ignore      bool
}

func newHoldCommand() *cobra.Command {
	c := holdConfig{}
	command := &cobra.Command{
		Use:     "hold NAME --volume CLAIM:/PATH…",
		Short:   "Keep volumes at directories of this machine",
		Long:    holdHelp,
		Example: "  holdfast hold database --volume data:/srv/data",
		Args:    one("the name of the hold"),
		RunE:    func(command *cobra.Command, given []string) error { return c.hold(command, given[0]) },
	}
	flags := command.Flags()
	c.hostClient.bind(flags)
	c.bindNamespace(flags)
	c.volumeFlags.bind(flags)
	flags.BoolVar(&c.untilReboot, "until-reboot", false,
		"end the hold with this boot, instead of bringing it back after one")
	c.completeFlags(command)
	return command
}

func newReleaseCommand() *cobra.Command {
	c := holdConfig{}
	command := &cobra.Command{
		Use:               "release NAME",
		Short:             "Take the volumes of a hold away",
		Args:              one("the name of the hold"),
		ValidArgsFunction: c.completePods,
		RunE:              func(command *cobra.Command, given []string) error { return c.release(command, given[0]) },
	}
	flags := command.Flags()
	c.hostClient.bind(flags)
	c.bindNamespace(flags)
	flags.DurationVar(&c.timeout, "timeout", time.Minute,
		"how long to wait until they are taken away; the host continues after it")
	flags.BoolVar(&c.ignore, "ignore-not-found", false, "do not fail for a hold that does not exist")
	c.completeFlags(command)
	return command
}

func (c *holdConfig) hold(command *cobra.Command, name string) error {
	request, targets, err := c.request(command)
	if err != nil {
		return err
	}
	request.Namespace, request.Name, request.Holder = c.namespace, name, "holdfast hold"
	request.UntilReboot = c.untilReboot
	for i, target := range targets {
		request.Volumes[i].Bind = target
	}
	client := c.dial()
	defer client.Close()
	stop := showSteps(command, client, request)
	answer, err := client.Hold(command.Context(), request)
	stop()
	for _, warning := range answer.Warnings {
		command.PrintErrln("Warning: " + printable(warning))
	}
	if isInterrupted(command.Context(), err) {
		return fmt.Errorf("interrupted; the host takes away what it mounted for a new hold %q: "+
			"'holdfast get pod %s' shows one that stays, and 'holdfast release %s' ends it", name, name, name)
	}
	return err
}

func (c *holdConfig) release(command *cobra.Command, name string) error {
	if c.timeout < time.Second {
		return usageErrorf("--timeout %s is below a second", c.timeout)
	}
	client := c.dial()
	defer client.Close()
	err := client.Release(command.Context(), api.ReleaseRequest{Namespace: c.namespace, Name: name},
		int64(c.timeout/time.Second))
	switch {
	case c.ignore && errors.Is(err, api.ErrNotFound):
		return nil
	case isInterrupted(command.Context(), err):
		return fmt.Errorf("interrupted; the host continues to release %q: 'holdfast get pod %s' shows it until that is done",
			name, name)
	}
	return err
}

// unitConfig are the flags of `systemd unit`.
type unitConfig struct {
	hostClient
	volumes []string
	name    string
	unit    string
	program string
}

func newSystemdCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "systemd",
		Short: "Give systemd units their volumes",
		Args:  unknownCommand,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	c := unitConfig{}
	unit := &cobra.Command{
		Use:   "unit --for UNIT --volume CLAIM:/PATH…",
		Short: "Print a drop-in that holds volumes for as long as a unit runs",
		Example: "  holdfast systemd unit --for postgresql.service --volume data:/srv/data \\\n" +
			"    | sudo tee /etc/systemd/system/postgresql.service.d/holdfast.conf",
		Args: arguments(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error { return c.print(command) },
	}
	flags := unit.Flags()
	c.bind(flags)
	c.bindNamespace(flags)
	flags.StringVar(&c.unit, "for", "", "`UNIT` that needs the volumes")
	flags.StringArrayVar(&c.volumes, "volume", nil, "`CLAIM:/PATH[:ro]`; may be repeated")
	flags.StringVar(&c.name, "name", "", "`NAME` of the hold (default: the unit's, without its type)")
	flags.StringVar(&c.program, "program", "/usr/local/bin/holdfast", "`PATH` of holdfast when the unit runs")
	command.AddCommand(unit)
	return command
}

// print writes the drop-in. Holding is idempotent, so that a unit that was killed
// starts again with the volumes that it still holds.
func (c *unitConfig) print(command *cobra.Command) error {
	stem, kind, err := cutUnit(c.unit)
	if err != nil {
		return err
	}
	if len(c.volumes) == 0 {
		return usageErrorf("no volume is given: --volume CLAIM:/PATH")
	}
	if c.name == "" {
		c.name = holdName(stem)
	}
	if err := c.checkWords(); err != nil {
		return err
	}
	where := ""
	if c.root != defaultRoot {
		root, err := filepath.Abs(c.root)
		if err != nil {
			return err
		}
		where = " --root " + quoteForSystemd(root)
	}
	if c.namespace != manifest.DefaultNamespace {
		where += " --namespace " + quoteForSystemd(c.namespace)
	}
	var volumes string
	for _, text := range c.volumes {
		if _, _, options, err := cutVolume("--volume", text); err != nil {
			return err
		} else if len(options) > 0 && !slices.Equal(options, []string{"ro"}) {
			return usageErrorf("--volume %q: after the path, there can only be :ro", text)
		}
		volumes += " --volume " + quoteForSystemd(text)
	}
	section := map[string]string{"service": "Service", "socket": "Socket"}[kind]
	_, err = fmt.Fprintf(command.OutOrStdout(), `# %s.d/holdfast.conf: the volumes of %s (holdfast systemd unit)
[Unit]
# Not Requires=, which would stop the unit when the host is restarted.
Wants=holdfast-host.service
After=holdfast-host.service

[%s]
# "+": with full privileges, and outside of the unit's own mount namespace.
ExecStartPre=+%s hold %s%s%s
ExecStopPost=+%s release %s --ignore-not-found%s
`, c.unit, c.unit, section, c.program, c.name, where, volumes, c.program, c.name, where)
	return err
}

// cutUnit cuts the name of a unit (systemd.unit(5)) at its type.
func cutUnit(name string) (stem, kind string, err error) {
	at := strings.LastIndexByte(name, '.')
	strange := strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune(`:-_.\@`, r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	if at <= 0 || strange {
		return "", "", usageErrorf("--for %q is not the name of a unit such as postgresql.service", name)
	}
	stem, kind = name[:at], name[at+1:]
	if !slices.Contains([]string{"service", "socket"}, kind) {
		return "", "", usageErrorf("--for %s: only services and sockets run commands before they start", name)
	}
	return stem, kind, nil
}

// checkWords refuses what the host would refuse when the unit starts, and what a line of
// a unit cannot have: systemd takes no control characters and no invalid UTF-8 there, and
// reads no quotes in the path of the program.
func (c *unitConfig) checkWords() error {
	if problems := content.IsDNS1123Subdomain(c.name); len(problems) > 0 {
		return usageErrorf("the name of the hold, %q: %s: give another one with --name", c.name, strings.Join(problems, "; "))
	}
	if !filepath.IsAbs(c.program) || quoteForSystemd(c.program) != c.program {
		return usageErrorf("--program %q is not an absolute path without spaces, quotes and the characters \\ %% $ ;", c.program)
	}
	for _, word := range append([]string{c.program, c.root}, c.volumes...) {
		if !utf8.ValidString(word) || strings.ContainsFunc(word, unicode.IsControl) {
			return usageErrorf("%q has a control character or is not UTF-8: systemd does not take it", word)
		}
	}
	return nil
}

// holdName makes a name of an object of a unit's name.
func holdName(unit string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, unit)
	return strings.Trim(name, "-")
}

// quoteForSystemd writes a word so that systemd reads it as it is
// (systemd.syntax(7), systemd.service(5) "Command lines").
func quoteForSystemd(word string) string {
	replaced := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(word)
	if replaced == word && !strings.ContainsAny(word, " \t';") {
		return word
	}
	return `"` + replaced + `"`
}
