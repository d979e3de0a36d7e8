package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// profileTime is how long the control plane's CPU profiles last.
const profileTime = 20 * time.Second

// startProfiles begins to write CPU profiles of the control plane to the directory of
// settings.profiles, if there is one. It returns what waits for them.
func (sc *scale) startProfiles(ctx context.Context, phase string) (wait func() error) {
	var group errgroup.Group
	if sc.s.profiles == "" {
		return group.Wait
	}
	for name, port := range map[string]int{"kube-apiserver": 443, "kube-controller-manager": 10257} {
		group.Go(func() error {
			file := fmt.Sprintf("%s-%d-nodes-%d-objects-%s.pprof", name, sc.design.nodes, sc.s.objects, phase)
			if err := sc.profile(ctx, port, filepath.Join(sc.s.profiles, file)); err != nil {
				return fmt.Errorf("profile of %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait
}

// profile writes a CPU profile of the program of the control plane that serves a port.
func (sc *scale) profile(ctx context.Context, port int, path string) error {
	config := rest.CopyConfig(sc.config)
	config.Host = sc.cluster.Server + ":" + strconv.Itoa(port)
	config.Timeout = 2 * profileTime
	// The controller manager signs its certificate itself.
	config.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	address := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", config.Host, int(profileTime.Seconds()))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	profile, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", address, response.Status, profile)
	}
	return os.WriteFile(path, profile, 0o644)
}
