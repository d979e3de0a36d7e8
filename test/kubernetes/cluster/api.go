package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"sigs.k8s.io/yaml"
)

// apiClient makes the few API requests of this package. Others use client-go with the
// kubeconfig.
type apiClient struct {
	server string
	token  string
	http   *http.Client
}

// newAPIClient reads a kubeconfig as this package writes it.
func newAPIClient(kubeconfig string) (*apiClient, error) {
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("cluster: %s: %w", kubeconfig, err)
	}
	if len(config.Clusters) == 0 || len(config.Users) == 0 {
		return nil, fmt.Errorf("cluster: %s: it has no cluster or no user", kubeconfig)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.Clusters[0].Cluster.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return &apiClient{
		server: config.Clusters[0].Cluster.Server, token: config.Users[0].User.Token,
		http: &http.Client{Transport: transport, Timeout: 30 * time.Second},
	}, nil
}

// get reads an object; result may be nil.
func (a *apiClient) get(ctx context.Context, path string, result any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, response.Status)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(body, result)
}

// lastReady returns, for each Ready node, the time of its kubelet's last heartbeat.
func (a *apiClient) lastReady(ctx context.Context) (map[string]time.Time, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Status struct {
				Conditions []struct {
					Type      string    `json:"type"`
					Status    string    `json:"status"`
					Heartbeat time.Time `json:"lastHeartbeatTime"`
				} `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := a.get(ctx, "/api/v1/nodes", &list); err != nil {
		return nil, err
	}
	ready := make(map[string]time.Time)
	for _, node := range list.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				ready[node.Metadata.Name] = c.Heartbeat
			}
		}
	}
	return ready, nil
}

// await calls ask until it returns nil. If ctx ends first, the error includes the last one.
func await(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var final finalError
		if err == nil || errors.As(err, &final) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// finalError is an error after which a retry cannot succeed.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }
