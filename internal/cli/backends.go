package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/local"
	"github.com/holdfast-csi/holdfast/internal/csi/server"
	winnode "github.com/holdfast-csi/holdfast/internal/node/windows"
	"github.com/holdfast-csi/holdfast/internal/quantity"
)

const defaultPool = "/var/lib/holdfast/pool"

const backendLocal = "local"

func backendNames() []string { return []string{backendLocal, backendEBS} }

// openBackend is a backend with both halves, as far as the mode needs them.
type openBackend struct {
	controller backend.Controller
	node       backend.Node
	windows    winnode.Backend // instead of node on a Windows node
	// forbidden directories must not contain staging and target paths.
	forbidden []string
	close     func() error
}

func openBackendOf(ctx context.Context, c driverConfig) (openBackend, error) {
	switch c.backend {
	case backendLocal:
		return openLocal(ctx, c)
	case backendEBS:
		return openEBS(ctx, c)
	}
	return openBackend{}, usageErrorf("--backend %q: this binary has %s", c.backend, strings.Join(backendNames(), ", "))
}

// localConfig are the flags of the backend local.
type localConfig struct {
	pool       string
	adopt      bool
	mountPoint bool // the pool must be a mount point
	overcommit float64
	reserve    sizeFlag
	inlineMax  sizeFlag
	image      string
	imageSize  sizeFlag
}

// bind declares the flags on a command; pool is the default of --pool.
func (l *localConfig) bind(flags *pflag.FlagSet, pool string) {
	flags.StringVar(&l.pool, "pool", pool, "`DIRECTORY` of the pool of the local backend")
	flags.BoolVar(&l.adopt, "adopt-pool", false, "take over a pool that belongs to another node ID")
	flags.BoolVar(&l.mountPoint, "require-pool-mount", false, "refuse a pool directory on which nothing is mounted")
	flags.Float64Var(&l.overcommit, "overcommit", 1, "bytes of thin volumes to promise for each byte of the pool")
	flags.Var(&l.reserve, "reserve", "`SIZE` of the pool that is never promised (default 1/64 of it, 16Mi to 1Gi)")
	flags.Var(&l.inlineMax, "inline-max-size", "largest `SIZE` of an inline volume (default 10Gi)")
	flags.StringVar(&l.image, "pool-image", "", "`FILE` to make into an xfs filesystem for the pool, which gives it reflink")
	flags.Var(&l.imageSize, "pool-image-size", "`SIZE` of a new pool image")
}

func (l *localConfig) check() error {
	if (l.image == "") != (l.imageSize == 0) {
		return usageErrorf("--pool-image and --pool-image-size go together")
	}
	return nil
}

func openLocal(ctx context.Context, c driverConfig) (openBackend, error) {
	if onWindows {
		return openBackend{}, usageErrorf("--backend=%s: its volumes are files with Linux filesystems, which Windows cannot mount; a Windows node takes --backend=%s", backendLocal, backendEBS)
	}
	if err := c.local.check(); err != nil {
		return openBackend{}, err
	}
	o := local.Options{
		Pool: c.local.pool, NodeID: c.nodeID, Role: roleOf(c.mode), Adopt: c.local.adopt, RequireMount: c.local.mountPoint,
		Overcommit: c.local.overcommit, Reserve: int64(c.local.reserve), MaximumEphemeral: int64(c.local.inlineMax),
		Logger: c.logger, Failpoints: c.points,
	}
	if c.local.image != "" {
		o.PoolImage = &local.ImageOptions{Path: c.local.image, Size: int64(c.local.imageSize)}
	}
	pool, err := local.Open(ctx, o)
	if err != nil {
		return openBackend{}, fmt.Errorf("open the pool %s: %w", c.local.pool, err)
	}
	forbidden := []string{c.local.pool}
	return openBackend{controller: pool.Controller(), node: pool.Node(), forbidden: forbidden, close: pool.Close}, nil
}

func roleOf(mode server.Mode) local.Role {
	switch mode {
	case server.Controller:
		return local.RoleController
	case server.Node:
		return local.RoleNode
	}
	return local.RoleAll
}

// sizeFlag is a flag with a size in bytes in the notation of Kubernetes, such
// as 512Mi.
type sizeFlag int64

func (q *sizeFlag) String() string {
	if *q == 0 {
		return ""
	}
	return resource.NewQuantity(int64(*q), resource.BinarySI).String()
}

// Set implements pflag.Value.
func (q *sizeFlag) Set(text string) error {
	parsed, err := quantity.Parse(text)
	if err != nil {
		return fmt.Errorf("%q is not a size; use a number of bytes, or one with a unit such as 512Mi", text)
	}
	bytes, whole := parsed.AsInt64()
	if !whole || bytes <= 0 {
		return fmt.Errorf("%q is not a whole number of bytes above 0", text)
	}
	*q = sizeFlag(bytes)
	return nil
}

// Type implements pflag.Value.
func (q *sizeFlag) Type() string { return "size" }
