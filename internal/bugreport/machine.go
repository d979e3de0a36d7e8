package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/redact"
)

// Machine are the sources about this machine: its kernel, tools and mounts, the processes
// of holdfast, and the host's directory. They need no host that runs.
func Machine(root string, runner command.Runner) []Source {
	sources := []Source{
		{"machine/system.txt", "kernel, distribution, load and memory", files("/proc/version", "/etc/os-release", "/proc/loadavg", "/proc/meminfo", "/proc/filesystems")},
		{"machine/mountinfo.txt", "the kernel's list of mounts", files("/proc/self/mountinfo")},
		{"machine/cgroups.txt", "cgroups", files("/proc/cgroups", "/proc/self/cgroup")},
		{"machine/block.txt", "block devices: sizes, counters, and the files behind loop devices", blockDevices},
		{"machine/tools.txt", "versions of the filesystem tools", versions(runner)},
		{"machine/processes.txt", "command lines of holdfast's processes", processes},
		{"machine/unit.txt", "the systemd unit holdfast.service", output(runner, "systemctl", "cat", "holdfast.service")},
		{"machine/log.txt", "the last lines of that unit's log", output(runner, "journalctl", "--unit=holdfast.service", "--lines=2000", "--no-pager", "--output=short-iso-precise")},
		{"host/files.txt", "names and sizes of the host's files and of the pool's", listing(root)},
	}
	return sources
}

// files reads files one after the other, each with its name before it.
func files(names ...string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		var all bytes.Buffer
		var failed error
		for _, name := range names {
			data, err := os.ReadFile(name)
			failed = errors.Join(failed, err)
			_, _ = fmt.Fprintf(&all, "== %s\n%s\n", name, data)
		}
		if all.Len() == 0 {
			return nil, failed
		}
		return all.Bytes(), nil
	}
}

func blockDevices(context.Context) ([]byte, error) {
	devices, err := filepath.Glob("/sys/block/*")
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, device := range devices {
		_, _ = fmt.Fprintf(&all, "== %s\n", filepath.Base(device))
		for _, name := range []string{"size", "ro", "stat", "queue/rotational", "queue/scheduler", "loop/backing_file", "loop/autoclear", "loop/dio"} {
			if data, err := os.ReadFile(filepath.Join(device, name)); err == nil {
				_, _ = fmt.Fprintf(&all, "%s: %s\n", name, bytes.TrimSpace(data))
			}
		}
	}
	return all.Bytes(), nil
}

// versions runs each tool; of one that is missing, that is said.
func versions(runner command.Runner) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		var all bytes.Buffer
		for _, words := range [][]string{
			{"mkfs.ext4", "-V"}, {"e2fsck", "-V"}, {"resize2fs", "-V"}, {"mkfs.xfs", "-V"}, {"xfs_repair", "-V"}, {"mkfs.btrfs", "--version"},
		} {
			result, err := runner.Run(ctx, command.Command{Name: words[0], Args: words[1:]})
			_, _ = fmt.Fprintf(&all, "== %s\n%s%s", strings.Join(words, " "), result.Stdout, result.Stderr)
			if err != nil {
				_, _ = fmt.Fprintln(&all, err)
			}
		}
		return all.Bytes(), nil
	}
}

func output(runner command.Runner, name string, arguments ...string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		result, err := runner.Run(ctx, command.Command{Name: name, Args: arguments})
		if err == nil && result.ExitCode != 0 {
			err = fmt.Errorf("%s: exit code %d: %s", name, result.ExitCode, bytes.TrimSpace(result.Stderr))
		}
		return result.Stdout, err
	}
}

// processes lists the command lines of the programs named holdfast.
func processes(context.Context) ([]byte, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, name := range lines {
		data, err := os.ReadFile(name)
		program, _, _ := strings.Cut(string(data), "\x00")
		if err != nil || filepath.Base(program) != "holdfast" {
			continue
		}
		words := withoutCommand(strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"))
		_, _ = fmt.Fprintf(&all, "%s: %s\n", filepath.Base(filepath.Dir(name)), strings.Join(words, " "))
	}
	return all.Bytes(), nil
}

// withoutCommand hides what follows --, as of 'holdfast exec': a command of a user, which may
// have passwords in any form.
func withoutCommand(words []string) []string {
	if end := slices.Index(words, "--"); end >= 0 && end < len(words)-1 {
		return append(words[:end+1:end+1], redact.Hidden)
	}
	return words
}

// isMounted reports whether volumes may be mounted at a directory below the host's: such a
// one may not answer, and what is in it is the users'.
func isMounted(root, name string) bool {
	words := strings.Split(strings.TrimPrefix(name, filepath.Clean(root)+"/"), "/")
	switch {
	case len(words) == 3 && words[0] == "pods":
		return words[2] != "run" && words[2] != "logs"
	case len(words) == 2 && words[0] == "plugins":
		return words[1] == "kubernetes.io"
	}
	return false
}

// listing has names, modes and sizes, and no content.
func listing(root string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		var all bytes.Buffer
		err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				_, _ = fmt.Fprintf(&all, "%s: %v\n", name, err)
				return nil // what can be read is listed
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if isMounted(root, name) {
				return filepath.SkipDir
			}
			info, err := entry.Info()
			if err != nil {
				return nil //nolint:nilerr // gone meanwhile
			}
			_, _ = fmt.Fprintf(&all, "%s %12d %s\n", info.Mode(), info.Size(), name)
			return nil
		})
		return all.Bytes(), err
	}
}
