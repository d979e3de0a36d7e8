package call

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
)

// askTime is how long a plugin may take to say who it is: as the kubelet gives.
const askTime = time.Second

// Locate finds a driver by its name below the root directory of a host or a
// kubelet: its socket at the usual path, or else the one that its registration
// socket returns.
func Locate(ctx context.Context, root, driver string) (endpoint string, err error) {
	paths := claim.Paths{Root: root}
	usual := filepath.Join(paths.Driver(driver), "csi.sock")
	if answers(ctx, usual) {
		return usual, nil
	}
	var others []string
	err = filepath.WalkDir(paths.Registry(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSocket == 0 || endpoint != "" {
			return err
		}
		info := ask(ctx, path)
		switch {
		case info.GetName() == driver:
			endpoint = cmp.Or(info.GetEndpoint(), path) // one may serve both
		case info.GetType() == registration.CSIPlugin && !slices.Contains(others, info.GetName()):
			others = append(others, info.GetName())
		}
		return nil
	})
	switch {
	case endpoint != "":
		return endpoint, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("find driver %s: %w", driver, err)
	case len(others) > 0:
		return "", fmt.Errorf("no driver %s is registered below %s; there are: %s", driver, root, strings.Join(others, ", "))
	}
	return "", fmt.Errorf("no driver %s is registered below %s, and no process serves %s: start it, give another "+
		"--root, or give its socket with --endpoint", driver, root, usual)
}

func answers(ctx context.Context, socket string) bool {
	dialer := net.Dialer{Timeout: askTime}
	connection, err := dialer.DialContext(ctx, "unix", socket)
	return err == nil && connection.Close() == nil
}

// ask reads the registration info of a plugin; nil if it does not answer, such as a dead one.
func ask(ctx context.Context, socket string) *registration.PluginInfo {
	connection, err := client.Connect(socket)
	if err != nil {
		return nil
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	info, err := registration.NewRegistrationClient(connection).GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return nil
	}
	return info
}
