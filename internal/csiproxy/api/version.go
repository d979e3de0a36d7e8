package api

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"

	"google.golang.org/grpc"
)

// PipePrefix is the beginning of every pipe's name.
const PipePrefix = `\\.\pipe\csi-proxy-`

// Definition is one version of one API.
type Definition struct {
	// Group is "" for the service of the KEP, else the group's: disk, volume, ….
	Group string
	// Version is a version such as v1, v1beta2 or v2alpha1.
	Version string
	// Register adds the service to a server. Its methods return the errors of the host
	// unchanged.
	Register func(registrar grpc.ServiceRegistrar, host Host)
}

// Pipe is the name of the version's pipe: \\.\pipe\csi-proxy-v1, or
// \\.\pipe\csi-proxy-disk-v1.
func (d Definition) Pipe() string {
	if d.Group == "" {
		return PipePrefix + d.Version
	}
	return PipePrefix + d.Group + "-" + d.Version
}

// versionPattern is Kubernetes' rule for versions of an API ("API versioning").
var versionPattern = regexp.MustCompile(`^v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?$`)

// versionNumber is a parsed version: the major number, the stage (0 alpha, 1 beta, 2
// stable), and the minor number.
type versionNumber struct{ major, stage, minor int }

func parseVersion(text string) (n versionNumber, err error) {
	parts := versionPattern.FindStringSubmatch(text)
	if parts == nil {
		return n, fmt.Errorf("version %.40q is not such as v1, v1beta2 or v2alpha1", text)
	}
	n.stage = 2
	if n.major, err = strconv.Atoi(parts[1]); err != nil {
		return n, fmt.Errorf("version %.40q: %w", text, err)
	}
	if parts[2] == "" {
		return n, nil
	}
	if n.stage = 0; parts[2] == "beta" {
		n.stage = 1
	}
	if n.minor, err = strconv.Atoi(parts[3]); err != nil {
		return n, fmt.Errorf("version %.40q: %w", text, err)
	}
	return n, nil
}

// CheckVersion rejects a text that is not a version.
func CheckVersion(text string) error {
	_, err := parseVersion(text)
	return err
}

// CompareVersions orders versions, the older first: by major number, then alpha, beta,
// stable, then by the minor number. A text that is not a version precedes all.
func CompareVersions(a, b string) int {
	x, _ := parseVersion(a)
	y, _ := parseVersion(b)
	return cmp.Or(cmp.Compare(x.major, y.major), cmp.Compare(x.stage, y.stage), cmp.Compare(x.minor, y.minor))
}
