package client_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// The matrix of the KEP's upgrade rules. The proxy's column has the versions that it serves; the
// plugin's the oldest version that it needs.
func TestUpgrade_matrix(t *testing.T) {
	for _, c := range []struct {
		name   string
		proxy  []api.Definition
		plugin string
		speaks string // version; "" is an error
		fails  error
		says   []string
	}{
		{name: "old plugin, new proxy that still serves its version",
			proxy: only("v1", "v1beta1", "v1alpha1"), plugin: "v1alpha1", speaks: "v1"},
		{name: "old plugin's own version alone", proxy: only("v1alpha1"), plugin: "v1alpha1", speaks: "v1alpha1"},
		{name: "beta proxy", proxy: only("v1beta1", "v1alpha1"), plugin: "v1beta1", speaks: "v1beta1"},
		{name: "new plugin, old proxy", proxy: only("v1beta1", "v1alpha1"), plugin: "v1", fails: client.ErrVersion,
			says: []string{"needs v1", "found v1beta1, v1alpha1", "upgrade csi-proxy.exe on all nodes before the plugin"}},
		{name: "newer plugin, oldest proxy", proxy: only("v1alpha1"), plugin: "v1beta1", fails: client.ErrVersion,
			says: []string{"needs v1, v1beta1", "found v1alpha1"}},
		{name: "proxy of the future that dropped all versions wanted",
			proxy: []api.Definition{future("v3"), future("v2")}, plugin: "v1", fails: client.ErrVersion,
			says: []string{"needs v1", "found v3, v2", "next to the installed one"}},
		{name: "proxy of the group API only", proxy: groupPipes(), plugin: "v1", fails: client.ErrVersion,
			says: []string{"needs v1", "3 pipes of the group API"}},
		{name: "no proxy", plugin: "v1beta1", fails: client.ErrNoProxy, says: []string{"v1, v1beta1", "start the csi-proxy service"}},
		{name: "proxy of the future next to it", proxy: append(only("v1"), future("v2alpha1")), plugin: "v1", speaks: "v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			if len(c.proxy) > 0 {
				n.run(c.proxy...)
			}
			proxy, err := client.Dial(t.Context(), n.plugin(c.plugin))
			if c.speaks == "" {
				checkError(t, err, c.fails, c.says)
				if left := n.connections(0); left != nil {
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
			if left := n.connections(1); left != nil {
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

// Where pipes cannot be listed, as in some containers, versions are found
// all the same.
func TestUpgrade_versionsAreFoundWhereNothingListsPipes(t *testing.T) {
	n := newNode(t)
	n.run(append(only("v1alpha1"), future("v2beta1"))...)
	options := n.plugin("v1")
	options.Pipes = func() ([]string, error) { return nil, errors.New("no list") }
	_, err := client.Dial(t.Context(), options)
	checkError(t, err, client.ErrVersion, []string{"needs v1", "found v2beta1, v1alpha1"})
	if left := n.connections(0); left != nil {
		t.Error(left)
	}
}

// The old proxy runs next to the new one, which dropped its version.
func TestUpgrade_theOldProxyNextToTheNewOneServesTheOldPlugin(t *testing.T) {
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

// During a rolling upgrade the plugin waits for the node's turn, and
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

// A downgrade below what the plugin needs is an error that says so; above
// that the plugin continues in the older version.
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
	checkError(t, err, client.ErrVersion, []string{"needs v1", "found v1beta1"})
	if _, err := lenient.Rescan(t.Context(), &v1.RescanRequest{}); err != nil || lenient.Version() != "v1beta1" {
		t.Errorf("lenient: %q, %v", lenient.Version(), err)
	}
	if left := n.connections(1); left != nil {
		t.Error(left)
	}
}
