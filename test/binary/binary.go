// Package binary gives tests the project's commands as a user builds them.
package binary

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// builtVariable names the directory of commands that are built already: make
// test builds each once, for all packages that run it.
const builtVariable = "HOLDFAST_TEST_BIN"

// Build returns the path of the command cmd/NAME: the one that make test built,
// or a new one in dir, with the flags of the Makefile.
func Build(ctx context.Context, dir, name string) (path string, err error) {
	if built := os.Getenv(builtVariable); built != "" {
		path := filepath.Join(built, name)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s=%s: %w", builtVariable, built, err)
		}
		return path, nil
	}
	path = filepath.Join(dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-tags=grpcnotrace", "-o", path, "github.com/holdfast-csi/holdfast/cmd/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", name, err, output)
	}
	return path, nil
}
