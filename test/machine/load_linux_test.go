//go:build machine

package machine

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// writers are the programs of the load that append durable records: a unit with the
// drop-in of the guide, another one with sqlite3, and a pod of the host.
var writers = []string{"foo", "sql", "pod"}

// programs are the writers, and the one that checks what it wrote and then writes without
// fsync. Each reports a number in each boot.
var programs = append([]string{"scribble"}, writers...)

// loaded is a machine with the load, and what it has acknowledged.
type loaded struct {
	*lab
	// records are the numbers of the last records that the writers reported.
	records map[string]int
	// made are the claims and snapshots that exist; uncertain those that may.
	made, uncertain map[string]bool
	// grown is the size to which the claim "data" has grown at least, in bytes.
	grown int
	// mounts and devices are those of the first boot, which each later one must
	// have as well.
	mounts, devices string
}

const unitOfFoo = `[Unit]
Description=A program that writes records
[Service]
ExecStart=/usr/local/sbin/machine-guest write foo /srv/data/records
Restart=on-failure
[Install]
WantedBy=multi-user.target
`

// unitOfSQL is hardened, with a mount namespace of its own, as the guide says.
const unitOfSQL = `[Unit]
Description=A database
[Service]
ExecStart=/usr/local/sbin/machine-guest sql sql /srv/sql/rows.db
ProtectSystem=strict
ReadWritePaths=/srv/sql
PrivateTmp=yes
PrivateDevices=yes
ProtectHome=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
NoNewPrivileges=yes
RestrictAddressFamilies=AF_UNIX
CapabilityBoundingSet=
Restart=on-failure
[Install]
WantedBy=multi-user.target
`

// unitOfScribble fills the disk's cache with what no program flushes.
const unitOfScribble = `[Unit]
Description=A program that does not flush what it writes
[Service]
ExecStart=/usr/local/sbin/machine-guest scribble /srv/scribble/file
Restart=on-failure
[Install]
WantedBy=multi-user.target
`

const unitOfChurn = `[Unit]
Description=Claims and snapshots that come and go
Wants=holdfast-host.service
After=holdfast-host.service
[Service]
ExecStart=/bin/bash -c 'read -r boot </proc/sys/kernel/random/boot_id; exec /usr/local/sbin/machine-guest churn c-$${boot%%%%-*}'
`

const objects = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: now}
provisioner: local.holdfast.dev
volumeBindingMode: Immediate
parameters: {csi.storage.k8s.io/fstype: ext4}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: xfs}
provisioner: local.holdfast.dev
parameters: {csi.storage.k8s.io/fstype: xfs}
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: sql}
spec: {storageClassName: xfs, accessModes: [ReadWriteOnce], resources: {requests: {storage: 320Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: scribble}
spec: {storageClassName: now, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: pod}
spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: always}
spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  containers:
  - name: main
    image: none
    command: [/usr/local/sbin/machine-guest, write, pod, /data/records]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: pod}}
`

// newLoaded boots a machine, follows the guide of systemd on it, and starts the
// rest of the load.
func newLoaded(l *lab) *loaded {
	l.t.Helper()
	load := &loaded{lab: l, records: map[string]int{}, made: map[string]bool{}, uncertain: map[string]bool{}}
	l.boot()
	load.followGuide()
	load.put("/etc/systemd/system/sql.service", unitOfSQL)
	load.put("/etc/systemd/system/scribble.service", unitOfScribble)
	load.put("/etc/systemd/system/churn.service", unitOfChurn)
	load.put("/root/objects.yaml", objects)
	l.shell(`holdfast apply -f /root/objects.yaml
		mkdir -p /srv/sql /srv/scribble /srv/always
		for name in sql scribble; do
			mkdir -p /etc/systemd/system/$name.service.d
			holdfast systemd unit --for $name.service --volume $name:/srv/$name >/etc/systemd/system/$name.service.d/holdfast.conf
		done
		systemctl daemon-reload
		systemctl enable --now sql.service scribble.service
		holdfast hold always --volume always:/srv/always
		echo kept >/srv/always/file
		sync`)
	load.awaitWriters()
	load.mounts, load.devices = load.mounted(), load.attached()
	return load
}

// shellBlock finds the commands of a page.
var shellBlock = regexp.MustCompile("(?s)(?:<!-- test-docs: before\n(.*?)-->\n)?```sh\n(.*?)```")

// followGuide runs the commands of docs/guides/systemd.md, as they are written, in
// a directory that has what they need of the project. Its unit foo is ours.
func (l *loaded) followGuide() {
	l.t.Helper()
	l.putProject("deploy/systemd/holdfast-host.service", "examples/quickstart.yaml")
	l.put("/etc/systemd/system/foo.service", unitOfFoo)
	l.shell("systemctl daemon-reload; systemctl enable foo.service; cp %s /root/holdfast; ln -s /root/holdfast /root/project/holdfast", holdfastPath)
	page, err := os.ReadFile("../../docs/guides/systemd.md")
	l.must(err)
	blocks := shellBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 4 {
		l.t.Fatalf("docs/guides/systemd.md has %d blocks of commands; the test knows four", len(blocks))
	}
	for _, block := range blocks {
		l.t.Logf("the guide:\n%s%s", block[2], l.shell("cd /root/project\n%s", block[1]+block[2]))
	}
}

// awaitWriters returns when each program has written in this boot.
func (l *loaded) awaitWriters() {
	l.t.Helper()
	l.await(func(reports []string) bool {
		return !slices.ContainsFunc(programs, func(name string) bool { return lastRecord(reports, name) == 0 })
	})
}

func (l *loaded) await(condition func(reports []string) bool) {
	l.t.Helper()
	ctx, cancel := l.context()
	defer cancel()
	failed := ""
	err := l.Await(ctx, func(reports []string) bool {
		for _, r := range reports {
			if strings.HasPrefix(r, "failed ") {
				failed = r
			}
		}
		return failed != "" || condition(reports)
	})
	l.must(err)
	if failed != "" {
		l.t.Fatalf("a program of the load: %s", failed)
	}
}

// mounted are the mount points of volumes, sorted, without UIDs.
func (l *loaded) mounted() string {
	return l.shell(`findmnt -rno TARGET,FSTYPE | grep -E ' (ext4|xfs|btrfs)$' | sed -E 's/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}/UID/g; s/[0-9a-f]{16,}/HASH/g' | sort`)
}

// attached are the files of loop devices, sorted.
func (l *loaded) attached() string { return l.shell(`losetup -nO BACK-FILE | sort`) }

// lastRecord is the highest number that a writer reported; 0 for none.
func lastRecord(reports []string, name string) int {
	for _, r := range slices.Backward(reports) {
		if number, ok := strings.CutPrefix(r, name+" "); ok {
			n, err := strconv.Atoi(number)
			if err != nil {
				panic(fmt.Sprintf("report %q", r))
			}
			return n
		}
	}
	return 0
}

func firstRecord(reports []string, name string) int {
	for _, r := range reports {
		if strings.HasPrefix(r, name+" ") {
			return lastRecord([]string{r}, name)
		}
	}
	return 0
}

// note takes in what the load acknowledged in the boot that ends.
func (l *loaded) note() {
	reports := l.Reports()
	for _, name := range writers {
		l.records[name] = max(l.records[name], lastRecord(reports, name))
	}
	for _, r := range reports {
		verb, object, _ := strings.Cut(r, " ")
		switch verb {
		case "made":
			l.made[object] = true
			delete(l.uncertain, object)
		case "making", "deleting":
			l.uncertain[object] = true
			delete(l.made, object)
		case "deleted":
			delete(l.uncertain, object)
		case "grown":
			l.grown = max(l.grown, lastRecord([]string{object}, "data"))
		}
	}
}
