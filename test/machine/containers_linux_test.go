//go:build machine

package machine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// imageName is a container image whose program appends records to /data/records.
const imageName = "localhost/records:latest"

// newContainers boots a Debian with container engines and installs the host as the
// guide of systemd says.
func newContainers(t *testing.T) *lab {
	l := newLabOf(t, "trixie", "containers")
	l.boot()
	l.putProject("deploy/systemd/holdfast-host.service", "deploy/systemd/holdfast-volume-plugin.socket")
	l.shell(`cp /root/project/deploy/systemd/holdfast-host.service /etc/systemd/system/
		systemctl daemon-reload
		systemctl enable --now holdfast-host
		mkdir /root/image
		cp %s /bin/busybox /root/image
		tar -C /root/image -c . >/root/image.tar`, guestPath)
	return l
}

// imported makes the image with an engine, without a registry.
func (l *lab) imported(engine string) {
	l.t.Helper()
	l.shell(`%s import --change 'CMD ["/machine-guest","write","-","/data/records"]' /root/image.tar %s`, engine, imageName)
}

// container is one that appends records to a volume.
type container struct {
	// volume is the name of its claim.
	volume string
	// exec is the beginning of a command that runs in it, restart one that restarts it.
	exec, restart string
}

// passes returns when each container has written past its number of records, and
// returns the new ones.
func (l *lab) passes(containers []container, past map[string]int) map[string]int {
	l.t.Helper()
	ctx, cancel := l.context()
	defer cancel()
	reached := map[string]int{}
	for _, c := range containers {
		l.eventually(fmt.Sprintf("the container of %s writes past record %d", c.volume, past[c.volume]), func() bool {
			result, err := l.Run(ctx, "bash", "-c", c.exec+" /machine-guest verify /data/records")
			l.must(err)
			// A container that is not running yet is an error of the command.
			number, err := strconv.Atoi(strings.TrimSpace(result.Stdout))
			reached[c.volume] = number
			return err == nil && number > past[c.volume]
		})
	}
	return reached
}

// checkContainers restarts the containers, the host, and both at the same time, then
// the machine, then cuts its power: nothing that was recorded is lost, and the
// containers run again without a command.
func (l *lab) checkContainers(containers []container) {
	l.t.Helper()
	numbers := l.passes(containers, map[string]int{})
	for _, c := range containers {
		l.shell("%s", c.restart)
		l.shell("systemctl restart --no-block holdfast-host; %s; systemctl start holdfast-host", c.restart)
	}
	numbers = l.passes(containers, numbers)
	l.shutDown(func() {})
	l.boot()
	numbers = l.passes(containers, numbers)
	l.checkShutdown()
	l.cut(0.5)
	l.boot()
	l.passes(containers, numbers)
	l.checkNoOtherHolds(len(containers))
	l.shell("systemctl stop holdfast-volume-plugin.socket holdfast-host; holdfast host check; systemctl start holdfast-volume-plugin.socket holdfast-host")
	l.passes(containers, numbers)
	l.checkConfined(containers)
}

// checkConfined fails if a container has no profile of AppArmor that is enforced, or if
// AppArmor has denied something since the boot.
func (l *lab) checkConfined(containers []container) {
	l.t.Helper()
	for _, c := range containers {
		if profile := l.shell("%s /busybox cat /proc/self/attr/current", c.exec); !strings.HasSuffix(profile, " (enforce)") {
			l.t.Errorf("the container of %s has the AppArmor profile %q", c.volume, profile)
		}
	}
	if denied := l.shell(`journalctl -k -b --no-pager -o cat | grep 'apparmor="DENIED"' || true`); denied != "" {
		l.t.Errorf("AppArmor denied:\n%s", denied)
	}
}

// checkNoOtherHolds fails if holds of containers that ended are left.
func (l *lab) checkNoOtherHolds(want int) {
	l.t.Helper()
	count := 0
	l.eventually(fmt.Sprintf("there are %d holds of the volume plugin", want), func() bool {
		count = strings.Count(l.shell("holdfast get pods"), "volume-plugin-")
		return count == want
	})
}

// TestQuadlet_comesBackWithItsVolume follows the guide of Podman and Quadlet.
func TestQuadlet_comesBackWithItsVolume(t *testing.T) {
	l := newContainers(t)
	l.imported("podman")
	l.followSections("podman.md", imageName, "Podman", "Quadlet")
	l.checkContainers([]container{{volume: "site", exec: "podman exec systemd-site", restart: "systemctl restart site"}})
}

// TestDocker_containersComeBackWithTheirVolumes follows the guide of Docker and
// Compose with Docker's daemon.
func TestDocker_containersComeBackWithTheirVolumes(t *testing.T) {
	l := newContainers(t)
	l.shell("systemctl enable --now docker.service")
	l.imported("docker")
	l.followSections("podman.md", imageName, "Docker", "Compose")
	l.checkContainers([]container{
		{volume: "data", exec: "docker exec data", restart: "docker restart data"},
		{volume: "records", exec: "docker compose -f /root/project/compose.yaml exec -T records",
			restart: "docker compose -f /root/project/compose.yaml restart"},
	})
}
