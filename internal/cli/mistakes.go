package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/spelling"
)

// otherWords are commands of other programs, with those that do the same here.
func otherWords() map[string]string {
	return map[string]string{
		"ps": "get pods", "ls": "get all", "list": "get all", "show": "describe", "inspect": "describe",
		"rm": "delete", "remove": "delete", "log": "logs", "expand": "resize", "grow": "resize", "explain": "why",
		"mount": "hold", "attach": "hold", "umount": "release", "unmount": "release", "detach": "release",
		"start": "host", "serve": "host", "daemon": "host", "up": "apply", "down": "delete",
	}
}

// outOfScope says why some commands of kubectl do not exist, and what to do instead.
func outOfScope() map[string]string {
	const ports = "the containers of a host share the machine's network, so that nothing needs to be forwarded: connect to " +
		"127.0.0.1 and the port that the container listens on; in a cluster, use 'kubectl port-forward'"
	return map[string]string{"port": ports, "port-forward": ports}
}

// unknownCommand is the check of a command with subcommands: a remaining argument was
// meant as the name of one.
func unknownCommand(command *cobra.Command, given []string) error {
	if len(given) == 0 {
		return nil
	}
	if reason := outOfScope()[given[0]]; reason != "" && !command.HasParent() {
		return usageErrorf("%s is out of scope: %s", given[0], reason)
	}
	if meant := meantCommand(command, given[0]); meant != "" {
		return usageErrorf("unknown command %q; did you mean %q?", given[0], meant)
	}
	return usageErrorf("unknown command %q", given[0])
}

// meantCommand is what a user probably meant, "" if that is unknown.
func meantCommand(command *cobra.Command, word string) string {
	if !command.HasParent() {
		if meant := otherWords()[word]; meant != "" && isCommand(command, meant) {
			return meant
		}
		if kind, known := tableKindNamed(word); known {
			return "get " + kind.kind.Resource
		}
	}
	var known []string
	for _, sub := range command.Commands() {
		if !sub.Hidden {
			known = append(known, sub.Name())
		}
	}
	begun := slices.DeleteFunc(slices.Clone(known), func(name string) bool { return !strings.HasPrefix(name, word) })
	if len(begun) == 1 {
		return begun[0]
	}
	return spelling.Nearest(word, known)
}

// isCommand reports whether the first word of a line is a command below this one.
func isCommand(command *cobra.Command, line string) bool {
	found, _, err := command.Find(strings.Fields(line)[:1])
	return err == nil && found != command
}

// unknownFlag makes a fault of the flags a wrong command line, and names the flag that
// was probably meant.
func unknownFlag(command *cobra.Command, err error) error {
	// The words before it are of a command that does not exist, and so is the flag.
	if words := command.Flags().Args(); command.HasSubCommands() && len(words) > 0 {
		if unknown := command.ValidateArgs(words); unknown != nil {
			return unknown
		}
	}
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(missing.GetSpecifiedName()) < 2 {
		return &UsageError{Err: err}
	}
	var known []string
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			known = append(known, flag.Name)
		}
	})
	if near := spelling.Nearest(missing.GetSpecifiedName(), known); near != "" {
		err = fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return &UsageError{Err: err}
}

// unknownKind names the kind that was probably meant.
func unknownKind(name string) error {
	var known []string
	for _, kind := range tableKinds() {
		known = append(append(known, kind.kind.Resource, strings.ToLower(kind.kind.Kind)), kind.short...)
	}
	if near := spelling.Nearest(name, append(known, driversWord)); near != "" {
		return usageErrorf("kind %q does not exist; did you mean %q? The kinds are %s", name, near, kindNames())
	}
	return usageErrorf("kind %q does not exist; the kinds are %s", name, kindNames())
}
