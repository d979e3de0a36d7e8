package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// plugin is the built binary under the name by which kubectl finds it in the PATH.
type plugin struct {
	*scene
	directory string
}

func (c *scene) plugin() plugin {
	c.Helper()
	directory := c.TempDir()
	// make image builds the same binary for the image.
	if err := os.Symlink(absolute(c.T, "../../../bin/image/holdfast"), filepath.Join(directory, "kubectl-holdfast")); err != nil {
		c.Fatal(err)
	}
	return plugin{c, directory}
}

// command is 'kubectl holdfast ARGUMENTS' in the test's namespace, which the kubeconfig's
// context does not have.
func (p plugin) command(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, p.cluster.KubectlPath(), append([]string{"holdfast"}, arguments...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+p.cluster.Kubeconfig, "PATH="+p.directory+":"+os.Getenv("PATH"))
	return command
}

// says runs a command of the plugin that ends with an exit code, and says some words.
func (p plugin) says(code int, words string, arguments ...string) {
	p.Helper()
	output, err := p.command(p.Context(), arguments...).CombinedOutput()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got, err = exit.ExitCode(), nil
	}
	if err != nil || got != code || !strings.Contains(string(output), words) {
		p.Errorf("kubectl holdfast %s: %v, exit code %d; want %d and %q\n%s", strings.Join(arguments, " "), err, got, code, words, output)
	}
}

// isAPluginOfKubectl: kubectl finds the binary, gives it its arguments and passes its exit
// codes on; the answers are about the objects of the real API server.
func (c *scene) isAPluginOfKubectl() {
	p := c.plugin()
	c.makeClaim(newClaim("data", "16Mi"))
	c.makeClaim(newClaim("waits", "16Mi"))
	c.run(newPod("app", idle, withClaim("data")))
	p.says(0, "is bound to volume", "why", "pvc/data", "-n", c.namespace)
	p.says(3, "WaitForFirstConsumer", "why", "pvc/waits", "-n", c.namespace)
	p.says(4, "does not exist", "why", "pvc/none", "-n", c.namespace)
	p.says(2, "--metrics-volumes", "top")
	p.says(0, "/now created", "snapshot", "data", "now", "--class", class, "--wait", "-n", c.namespace)
	c.waitSnapshot("now")
	c.pageShows(p.command(c.Context(), "status"))
	c.pageShows(exec.CommandContext(c.Context(), absolute(c.T, "../../../bin/image/holdfast"), "status", "--kubeconfig", c.cluster.Kubeconfig))
}

// pageShows starts a command that serves the status page, reads the pages of the test's
// objects, and ends the command.
func (c *scene) pageShows(command *exec.Cmd) {
	c.Helper()
	output, err := command.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	if err := command.Start(); err != nil {
		c.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		c.Fatalf("%v: %v", command, err)
	}
	for page, words := range map[string][]string{
		"pvc/" + c.namespace + "/data":     {"Bound", "ProvisioningSucceeded", "Course", ">create<"},
		"pvc/" + c.namespace + "/waits":    {"Pending", "WaitForFirstConsumer"},
		"pod/" + c.namespace + "/app":      {"Running", "Course", ">start<"},
		"snapshot/" + c.namespace + "/now": {"Ready", "Course"},
		"volumes":                          {c.namespace, "data"},
	} {
		c.eventually(func() error {
			text, err := c.read(strings.TrimSpace(line) + page)
			if err != nil {
				return err
			}
			for _, word := range words {
				if !strings.Contains(text, word) {
					return fmt.Errorf("page %s lacks %q:\n%s", page, word, text)
				}
			}
			return nil
		})
	}
	if err := errors.Join(command.Process.Signal(syscall.SIGTERM), command.Wait()); err != nil {
		c.Errorf("%v: %v", command, err)
	}
}

// read returns the content of a page.
func (c *scene) read(url string) (string, error) {
	request, err := http.NewRequestWithContext(c.Context(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(text), err
}
