package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
)

// Kubeconfig is a file with the way to the API server, for tests of commands.
func (c *Cluster) Kubeconfig() string {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q}}]
users: [{name: test, user: {}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, c.http.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}
