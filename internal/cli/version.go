package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(command *cobra.Command, _ []string) error { return printVersion(command, version) },
	}
}

func printVersion(command *cobra.Command, version string) error {
	_, err := fmt.Fprintln(command.OutOrStdout(), "holdfast "+version)
	return err
}

// versionOrBuild is the version of this binary: that of the build's flag, else the Go
// toolchain's. It is never empty, because Kubernetes refuses a plugin without
// vendor_version.
func versionOrBuild(stamped string) string {
	if stamped != "" {
		return stamped
	}
	info, known := debug.ReadBuildInfo()
	if !known {
		return "devel"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return "devel"
	}
	version := "devel-" + revision[:min(12, len(revision))]
	if settings["vcs.modified"] == "true" {
		version += "-modified"
	}
	return version
}
