package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// simulated is the simulated driver of a networked storage system (test/simulated). It is
// one process on the machine, outside the cluster.
const simulated = "e2e.simulated.holdfast.dev"

// program is a process of the machine that ends with the test.
type program struct {
	command *exec.Cmd
	log     string
	ended   chan error
}

// start runs a program in the background. If the test fails, its log is printed.
func (c *scene) start(dir, name, path string, args ...string) *program {
	c.Helper()
	return startProgram(c.T, dir, name, path, args...)
}

func startProgram(t *testing.T, dir, name, path string, args ...string) *program {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p := &program{command: exec.Command(path, args...), log: log.Name(), ended: make(chan error, 1)}
	p.command.Stdout, p.command.Stderr = log, log
	// It ends with this process, however that ends.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		t.Fatalf("%v: `make test-kubernetes` builds it", err)
	}
	go func() { p.ended <- p.command.Wait() }()
	t.Cleanup(func() {
		p.kill()
		if text, err := os.ReadFile(p.log); t.Failed() && err == nil {
			t.Logf("--- the last of what %s says\n%s", name, text[max(0, len(text)-8000):])
		}
	})
	return p
}

// kill ends it at once, and waits until it has ended.
func (p *program) kill() {
	_ = p.command.Process.Kill() // it may have ended
	err := <-p.ended
	p.ended <- err
}

// losesItsLeader runs two processes with one lease for the simulated driver and kills the
// leader twice: while it provisions volumes, and while it deletes them.
func (c *scene) losesItsLeader() {
	const many = 60
	// The path of a socket has 107 bytes at most.
	dir, err := os.MkdirTemp("", "leader-")
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = os.RemoveAll(dir) })
	driver := c.simulate(dir)
	standby := map[string]*program{}
	join := func(name string) {
		c.Helper()
		standby[name] = c.start(dir, name, filepath.Join(c.deployment.Options.Root, "bin/image/holdfast"), "sidecars",
			"--csi-address="+filepath.Join(dir, "csi.sock"), "--kubeconfig="+c.cluster.Kubeconfig,
			"--namespace="+c.namespace, "--pod-name="+name, "--worker-threads=4")
	}
	join("first")
	join("second")
	killLeader := func() {
		c.Helper()
		name := c.leader()
		if standby[name] == nil {
			c.Fatalf("the lease is held by %q", name)
		}
		begun := time.Now()
		standby[name].kill()
		delete(standby, name)
		c.eventually(func() error {
			if c.leader() == name {
				return fmt.Errorf("the lease is held by %s, which is dead", name)
			}
			return nil
		})
		c.Logf("%s, killed, is followed by %s after %v", name, c.leader(), time.Since(begun).Round(time.Millisecond))
	}
	c.eventually(func() error {
		if c.leader() == "" {
			return errors.New("the lease has no holder")
		}
		return nil
	})
	for i := range many {
		c.makeClaim(newClaim(fmt.Sprintf("claim-%d", i), "1Gi", inClass(c.namespace)))
	}
	c.eventually(func() error { return c.bound(many / 4) })
	killLeader()
	c.eventually(func() error { return c.bound(many) })
	if made := driver(); made != many {
		c.Errorf("the driver has %d volumes for %d claims", made, many)
	}
	join("third")
	must(c)(c.kubectl(c.Context(), "delete", "pvc", "--all", "--wait=false"))
	c.eventually(func() error {
		if left := driver(); left > many*3/4 {
			return fmt.Errorf("the driver has %d volumes of %d", left, many)
		}
		return nil
	})
	killLeader()
	c.eventually(func() error { return c.empty(c.Context()) })
	if left := driver(); left != 0 {
		c.Errorf("%d volumes of deleted claims are left", left)
	}
}

// simulate starts the driver and makes a class for it. It returns a function
// that counts the driver's volumes.
func (c *scene) simulate(dir string) (volumes func() int) {
	c.Helper()
	socket := filepath.Join(dir, "csi.sock")
	c.start(dir, "driver", filepath.Join(c.deployment.Options.Root, "bin/kubernetes/simulated"),
		"-socket", socket, "-name", simulated, "-latency", "200ms")
	c.makeStorageClass(simulated, c.namespace, storagev1.VolumeBindingImmediate, nil)
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = connection.Close() })
	controller := csi.NewControllerClient(connection)
	return func() int {
		c.Helper()
		list, err := controller.ListVolumes(c.Context(), &csi.ListVolumesRequest{})
		if err != nil || list.GetNextToken() != "" {
			c.Fatalf("list the driver's volumes: %v, %v", list.GetNextToken(), err)
		}
		return len(list.GetEntries())
	}
}

// leader returns the holder of the namespace's only lease.
func (c *scene) leader() string {
	c.Helper()
	list, err := c.api.CoordinationV1().Leases(c.namespace).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var holders []string
	for _, lease := range list.Items {
		if lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
			name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
			holders = append(holders, name)
		}
	}
	return strings.Join(holders, ",")
}

// bound returns an error until at least this many claims are bound.
func (c *scene) bound(least int) error {
	list, err := c.api.CoreV1().PersistentVolumeClaims(c.namespace).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	have := 0
	for _, claim := range list.Items {
		if claim.Status.Phase == corev1.ClaimBound {
			have++
		}
	}
	if have < least {
		return fmt.Errorf("%d claims of %d are bound", have, least)
	}
	return nil
}
