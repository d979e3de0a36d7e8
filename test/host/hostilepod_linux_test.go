package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// intrusion tries every way from a pod into the host's directory, as root, and
// writes the names of those that work. The alias is another path to the directory,
// and the device is that of its filesystem.
func intrusion(root, alias, device string) string {
	return strings.NewReplacer("ROOT", root, "ALIAS", alias, "DEVICE", device).Replace(`
exec 2>/dev/null
broke() { echo "BROKE $*" >> /data/report; }
reaches() { # the host's directory has a store; the name of the way; a path
  [ -e "$2/host.db" ] && broke "$1: reads the store"
  [ -e "$2/secrets.key" ] && broke "$1: reads the key"
  ls "$2"/pool/volumes/* && broke "$1: lists the volumes"
  mkdir -p "$2/drivers.d" && echo "name: evil.example" > "$2/drivers.d/evil.yaml" && broke "$1: writes a unit file"
  ln "$2/host.db" /data/link && broke "$1: links the store"
  rm "$2/host.sock" && broke "$1: removes the socket"
}
reaches path ROOT
reaches alias ALIAS
for p in /proc/[0-9]*; do
  reaches "root of $p" $p/rootROOT
  reaches "directory of $p" $p/cwdROOT
  for f in $p/fd/*; do
    reaches "descriptor $f" $f/../../../..
    reaches "descriptor $f" $f/../../../../..
  done
done
umount ROOT && { broke unmounts; reaches unmounted ROOT; }
umount -l ROOT && { broke "unmounts lazily"; reaches "unmounted lazily" ROOT; }
umount -l ALIAS && { broke "unmounts the alias"; reaches "unmounted alias" ALIAS; }
mkdir -p /bound
mount --bind / /bound && { broke "binds the root"; reaches "bound" /boundROOT; }
unshare --mount true && broke "makes a mount namespace"
unshare --user --map-root-user --mount sh -c 'umount -l ROOT; ls ROOT/host.db' && broke "unmounts as root of a user namespace"
unshare --user --map-root-user --mount sh -c 'mount --bind / /bound; ls /boundROOT/host.db' && broke "binds as root of a user namespace"
nsenter --target 1 --mount true && broke "enters a mount namespace"
chroot /proc/1/root ls ROOT/host.db && broke "changes its root"
mknod /data/disk b DEVICE && { broke "makes a device"; head -c 512 /data/disk > /data/sector && broke "reads the disk"; }
mknod /disk b DEVICE && broke "makes a device in its root"
for d in $(find /dev -type b); do broke "has the disk $d"; done
[ -w /proc/sys/kernel/core_pattern ] && cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern && broke "writes the program of core dumps"
[ -w /sys/kernel/uevent_seqnum ] || [ -w /sys/power/state ] || [ -w /sys/fs/cgroup/cgroup.procs ] && broke "writes to sysfs"
echo done >> /data/report
sync
`)
}

func intruder(name, claim, security, script string) string {
	text := claimText(claim, "first", 16, "") + fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: none
    securityContext: %s
    command: [sh, -c, SCRIPT]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
`, name, security, claim)
	return strings.Replace(text, "SCRIPT", fmt.Sprintf("%q", script), 1)
}

// report runs an intruder to its end, and returns its output.
func (m *machine) report(name, claim, security, script string) string {
	m.t.Helper()
	m.apply(intruder(name, claim, security, script))
	m.until(name+" has ended", limitOfTest, func() bool {
		pod := get[*corev1.Pod](m, "pods", "default", name)
		return pod != nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
	})
	reader := "reads-" + name
	m.apply(heldPod(reader, claim))
	data, err := os.ReadFile(filepath.Join(filepath.Dir(m.content(m.running(reader), claim)), "report"))
	if err != nil {
		m.t.Errorf("%s wrote no report: %v", name, err)
	}
	for kind, names := range map[string][]string{"pods": {name, reader}, "persistentvolumeclaims": {claim}} {
		for _, name := range names {
			if _, err := m.client.Delete(m.t.Context(), m.kind(kind), "default", name, api.DeleteOptions{}); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	m.until(claim+" is gone", limitOfTest, func() bool { return m.claimOf(claim) == nil })
	return string(data)
}

// alias makes another path to the host's directory.
func (m *machine) alias() string {
	m.t.Helper()
	alias := m.root + ".alias"
	if err := os.Mkdir(alias, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := syscall.Mount(m.root, alias, "", syscall.MS_BIND, ""); err != nil {
		m.t.Fatal(err)
	}
	// What is mounted in the directory later is not mounted there, too: the volumes
	// would be in use.
	if err := syscall.Mount("", alias, "", syscall.MS_PRIVATE, ""); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if err := syscall.Unmount(alias, syscall.MNT_DETACH); err != nil {
			m.t.Error(err)
		}
	})
	return alias
}

func (m *machine) device() string {
	m.t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(m.root, &stat); err != nil {
		m.t.Fatal(err)
	}
	return fmt.Sprintf("%d %d", stat.Dev>>8&0xfff, stat.Dev&0xff)
}

// A pod that runs as root finds no way to the host's directory. One that says
// privileged does: so the script is one that finds ways.
func TestHostilePod_doesNotReachTheHost(t *testing.T) {
	m := newMachine(t)
	if err := os.MkdirAll(m.root, 0o755); err != nil {
		t.Fatal(err)
	}
	alias := m.alias()
	m.start()
	file := m.used("other", "other")
	m.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: secret}\n")
	script := intrusion(m.root, alias, m.device())
	for _, security := range []string{"{}", "{readOnlyRootFilesystem: true}", "{capabilities: {add: [NET_ADMIN], drop: [KILL]}}"} {
		if said := m.report("intruder", "mine", security, script); said != "done\n" {
			t.Errorf("a pod with securityContext %s:\n%s", security, said)
		}
	}
	if said := m.report("privileged", "mine", "{privileged: true}", script); !strings.Contains(said, "BROKE") {
		t.Errorf("a privileged pod finds no way, so the script finds none:\n%s", said)
	}
	if err := os.Remove(filepath.Join(m.root, "drivers.d", "evil.yaml")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	m.has(file, "other")
	m.stop() // the privileged one may have removed the socket
	m.start()
	m.clear([]string{"other"}, []string{"other"})
}
