package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/version"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// The matrix of the KEP's upgrade rules. The proxy's column is what it serves; the
// plugin's the oldest version that it needs.
func TestUpgrade_matrix(t *testing.T) {
	for _, c := range []struct {
		name   string
		proxy  []version.Definition
		plugin string
		speaks string // version; "" is an error
		fails  error
		says   []string
	}{
		{name: "P-6: old plugin, new proxy that still serves its version", proxy: only("v1", "v1beta1", "v1alpha1"), plugin: "v1alpha1", speaks: "v1"},
		{name: "old plugin's own version alone", proxy: only("v1alpha1"), plugin: "v1alpha1", speaks: "v1alpha1"},
		{name: "P-8: beta proxy", proxy: only("v1beta1", "v1alpha1"), plugin: "v1beta1", speaks: "v1beta1"},
		{name: "U-1: new plugin, old proxy", proxy: only("v1beta1", "v1alpha1"), plugin: "v1", fails: client.ErrVersion,
			says: []string{"wanted v1", "found v1beta1, v1alpha1", "upgrade csi-proxy.exe on all nodes before the plugin"}},
		{name: "U-1: newer plugin, oldest proxy", proxy: only("v1alpha1"), plugin: "v1beta1", fails: client.ErrVersion,
			says: []string{"wanted v1, v1beta1", "found v1alpha1"}},
		{name: "P-7: proxy of the future that dropped all versions wanted", proxy: []version.Definition{future("v3"), future("v2")}, plugin: "v1", fails: client.ErrVersion,
			says: []string{"wanted v1", "found v3, v2", "beside the one that is there"}},
		{name: "proxy of the group API only", proxy: groupPipes(), plugin: "v1", fails: client.ErrVersion,
			says: []string{"wanted v1", "3 pipes of the group API"}},
		{name: "no proxy", plugin: "v1beta1", fails: client.ErrNoProxy, says: []string{"v1, v1beta1", "start the csi-proxy service"}},
		{name: "proxy of the future beside", proxy: append(only("v1"), future("v2alpha1")), plugin: "v1", speaks: "v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			if len(c.proxy) > 0 {
				n.run(c.proxy...)
			}
			proxy, err := client.Dial(t.Context(), n.plugin(c.plugin))
			if c.speaks == "" {
				checkError(t, err, c.fails, c.says)
				if left := n.connections(0); left != nil { // D-15
					t.Error(left)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if proxy.Version() != c.speaks {
				t.Errorf("speaks %s, want %s", proxy.Version(), c.speaks)
			}
			if _, err := proxy.Mkdir(t.Context(), &v1.MkdirRequest{Path: `C:\x`}); err != nil {
				t.Error(err)
			}
			if left := n.connections(1); left != nil { // D-15
				t.Error(left)
			}
			_ = proxy.Close()
			if left := n.connections(0); left != nil {
				t.Error(left)
			}
		})
	}
}

func checkError(t *testing.T, err, want error, says []string) {
	t.Helper()
	for _, kind := range []error{client.ErrNoProxy, client.ErrVersion, client.ErrServer} {
		if errors.Is(err, kind) != errors.Is(want, kind) {
			t.Errorf("%v; want %v", err, want)
		}
	}
	for _, text := range says {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
}

// U-1 U-4: where pipes cannot be listed, as in some containers, versions are found
// all the same.
func TestUpgrade_versionsAreFoundWhereNothingListsPipes(t *testing.T) {
	n := newNode(t)
	n.run(append(only("v1alpha1"), future("v2beta1"))...)
	options := n.plugin("v1")
	options.Pipes = func() ([]string, error) { return nil, errors.New("no list") }
	_, err := client.Dial(t.Context(), options)
	checkError(t, err, client.ErrVersion, []string{"wanted v1", "found v2beta1, v1alpha1"})
	if left := n.connections(0); left != nil { // D-15
		t.Error(left)
	}
}

// U-2 P-5 P-7: the old proxy runs beside the new one, which dropped its version.
func TestUpgrade_theOldProxyBesideTheNewOneServesTheOldPlugin(t *testing.T) {
	n := newNode(t)
	stopNew := n.run(only("v1")...)
	n.run(only("v1", "v1alpha1")...) // its v1 is taken
	old := n.plugin("v1alpha1")
	old.Dialer = hiding(n.dial, "v1", "v1beta1") // the old plugin does not know them
	plugin, err := client.Dial(t.Context(), old)
	if err != nil || plugin.Version() != "v1alpha1" {
		t.Fatal(plugin.Version(), err)
	}
	defer func() { _ = plugin.Close() }()
	stopNew()
	if _, err := plugin.Rescan(t.Context(), &v1.RescanRequest{}); err != nil {
		t.Errorf("after the new proxy's end: %v", err)
	}
}

// hiding is a dialer that knows nothing of some versions.
func hiding(dial func(context.Context, string) (net.Conn, error), versions ...string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, pipe string) (net.Conn, error) {
		for _, v := range versions {
			if strings.HasSuffix(pipe, "-"+v) {
				return nil, fs.ErrNotExist
			}
		}
		return dial(ctx, pipe)
	}
}

// U-1 U-3: during a rolling upgrade the plugin waits for the node's turn, and
// needs no restart then.
func TestUpgrade_theProxyIsUpgradedUnderThePlugin(t *testing.T) {
	n := newNode(t)
	stop := n.run(only("v1alpha1")...)
	strict, err := client.New(n.plugin("v1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = strict.Close() }()
	lenient, err := client.Dial(t.Context(), n.plugin(""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lenient.Close() }()
	checkError(t, strict.Check(t.Context()), client.ErrVersion, []string{"found v1alpha1"})
	_, err = lenient.UnmountVolume(t.Context(), &v1.UnmountVolumeRequest{})
	checkError(t, err, client.ErrVersion, []string{"UnmountVolume needs v1beta1", "v1alpha1"})

	stop()
	checkError(t, strict.Check(t.Context()), client.ErrNoProxy, nil)
	_, err = lenient.Rescan(t.Context(), &v1.RescanRequest{})
	checkError(t, err, client.ErrNoProxy, nil)

	n.run(only("v1", "v1beta1")...)
	for name, proxy := range map[string]*client.Client{"strict": strict, "lenient": lenient} {
		if err := proxy.Check(t.Context()); err != nil || proxy.Version() != "v1" {
			t.Errorf("%s after the upgrade: %q, %v", name, proxy.Version(), err)
		}
		if _, err := proxy.UnmountVolume(t.Context(), &v1.UnmountVolumeRequest{VolumeId: "x", StagingPath: "y"}); err != nil {
			t.Errorf("%s after the upgrade: %v", name, err)
		}
	}
}

// U-4 U-5: a downgrade below what the plugin needs is an error that says so; above
// that the plugin goes on in the older version.
func TestUpgrade_downgradeUnderThePlugin(t *testing.T) {
	n := newNode(t)
	stop := n.run(only("v1", "v1beta1", "v1alpha1")...)
	strict, err := client.Dial(t.Context(), n.plugin("v1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = strict.Close() }()
	lenient, err := client.Dial(t.Context(), n.plugin("v1beta1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lenient.Close() }()
	stop()
	n.run(only("v1beta1")...)
	_, err = strict.Rescan(t.Context(), &v1.RescanRequest{})
	checkError(t, err, client.ErrVersion, []string{"wanted v1", "found v1beta1"})
	if _, err := lenient.Rescan(t.Context(), &v1.RescanRequest{}); err != nil || lenient.Version() != "v1beta1" {
		t.Errorf("lenient: %q, %v", lenient.Version(), err)
	}
	if left := n.connections(1); left != nil {
		t.Error(left)
	}
}

// A restarted proxy is found by the very next call.
func TestReconnect_afterARestart(t *testing.T) {
	n := newNode(t)
	stop := n.run(only("v1")...)
	proxy, err := client.Dial(t.Context(), n.plugin("v1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = proxy.Close() }()
	for round := range 5 {
		stop()
		if round%2 == 0 { // somebody asks meanwhile
			_, err := proxy.Rescan(t.Context(), &v1.RescanRequest{})
			checkError(t, err, client.ErrNoProxy, nil)
		}
		stop = n.run(only("v1")...)
		if _, err := proxy.Rescan(t.Context(), &v1.RescanRequest{}); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// Calls at once share one connection, also when it must be found first.
func TestClient_manyCallsAtOnce(t *testing.T) {
	n := newNode(t)
	proxy, err := client.New(n.plugin(""))
	if err != nil {
		t.Fatal(err)
	}
	n.run(only("v1")...)
	failures := make(chan error)
	for range 64 {
		go func() {
			_, err := proxy.PathExists(t.Context(), &v1.PathExistsRequest{Path: "x"})
			failures <- err
		}()
	}
	for range 64 {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
	if n.dialled != 1 {
		t.Errorf("%d connections", n.dialled)
	}
	_ = proxy.Close()
	if _, err := proxy.Rescan(t.Context(), &v1.RescanRequest{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := proxy.Check(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A pipe that somebody else serves is not csi-proxy, and said to be not.
func TestDial_refusesAPipeOfSomebodyElse(t *testing.T) {
	n := newNode(t)
	wrong := groupPipes()[0]
	wrong.Group, wrong.Version = "", "v1"
	n.run(wrong)
	_, err := client.Dial(t.Context(), n.plugin("v1"))
	checkError(t, err, client.ErrServer, []string{`\\.\pipe\csi-proxy-v1`, "no such service"})
	if left := n.connections(0); left != nil {
		t.Error(left)
	}
	n.run(only("v1beta1")...)
	proxy, err := client.Dial(t.Context(), n.plugin("v1beta1"))
	if err != nil || proxy.Version() != "v1beta1" {
		t.Errorf("the next version: %v", err)
	}
}

// One who serves the pipe and says nothing does not hold a caller for ever.
func TestDial_endsWithItsContext(t *testing.T) {
	n := newNode(t)
	n.pipes.Take(`\\.\pipe\csi-proxy-v1`, server.Process{ID: 7})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := client.Dial(ctx, n.plugin("v1"))
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 3*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// Nor does he one who waits for as long as it takes.
func TestDial_givesUpOnAPipeThatSaysNothing(t *testing.T) {
	n := newNode(t)
	n.pipes.Take(`\\.\pipe\csi-proxy-v1`, server.Process{ID: 7})
	start := time.Now()
	_, err := client.Dial(t.Context(), n.plugin("v1"))
	checkError(t, err, client.ErrNoProxy, []string{`\\.\pipe\csi-proxy-v1`})
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	if left := n.connections(0); left != nil {
		t.Error(left)
	}
}

// A proxy whose calls wait in line is one all the same.
func TestDial_waitsForABusyProxy(t *testing.T) {
	n := newNode(t)
	n.slow = make(chan struct{})
	n.run(only("v1")...)
	first, err := client.Dial(t.Context(), n.plugin("v1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	ended := make(chan error)
	go func() {
		_, err := first.Rescan(t.Context(), &v1.RescanRequest{})
		ended <- err
	}()
	n.slow <- struct{}{} // the one call that this proxy does at a time has begun
	dialled := make(chan error)
	go func() {
		second, err := client.Dial(t.Context(), n.plugin("v1"))
		if err == nil {
			err = second.Close()
		}
		dialled <- err
	}()
	select {
	case err := <-dialled:
		t.Errorf("before the first call ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(n.slow)
	for _, result := range []chan error{ended, dialled} {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}

// Whom the pipe's security descriptor does not admit is told so: an older version
// would not admit him either.
func TestDial_deniedIsNeitherMissingNorAnotherVersion(t *testing.T) {
	options := client.Options{Dialer: func(context.Context, string) (net.Conn, error) {
		return nil, fmt.Errorf("open: %w", fs.ErrPermission)
	}}
	_, err := client.Dial(t.Context(), options)
	checkError(t, err, nil, []string{`\\.\pipe\csi-proxy-v1:`})
	if !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

func TestNew_refusesVersionsThatItDoesNotKnow(t *testing.T) {
	for _, oldest := range []string{"v2", "v1x", "1"} {
		if _, err := client.New(client.Options{Oldest: oldest}); err == nil {
			t.Errorf("%s is accepted", oldest)
		}
	}
}

// Errors of the proxy come as they are.
func TestClient_givesTheProxysCodes(t *testing.T) {
	n := newNode(t)
	n.run(only("v1")...)
	proxy, err := client.Dial(t.Context(), n.plugin("v1"))
	if err != nil {
		t.Fatal(err)
	}
	n.machine.Err = fs.ErrInvalid
	if _, err = proxy.Rescan(t.Context(), &v1.RescanRequest{}); status.Code(err) != codes.Internal || proxy.Version() != "v1" {
		t.Error(err)
	}
}
