//go:build machine

package machine

import (
	"strings"
	"testing"
)

// TestWatchdog_restartsAHostThatHangs stops the host's process with SIGSTOP. systemd
// must kill and restart it, and the pods and mounts must not notice.
func TestWatchdog_restartsAHostThatHangs(t *testing.T) {
	load := newLoaded(newLab(t, "base"))
	load.put("/etc/systemd/system/holdfast-host.service.d/soon.conf", "[Service]\nWatchdogSec=60\nTimeoutAbortSec=5\n")
	load.shell("systemctl daemon-reload; systemctl restart holdfast-host")
	before := load.shell("systemctl show -P MainPID holdfast-host; pgrep -f 'write [p]od'")
	load.shell("kill -STOP $(systemctl show -P MainPID holdfast-host)")
	after := load.shell(`for i in $(seq 600); do
			[ "$(systemctl show -P NRestarts holdfast-host)" = 0 ] || break
			sleep 1
		done
		until holdfast get pods >/dev/null 2>&1; do sleep 1; done
		systemctl show -P MainPID holdfast-host; pgrep -f 'write [p]od'`)
	hung, pod, _ := strings.Cut(before, "\n")
	host, still, _ := strings.Cut(after, "\n")
	if host == hung || host == "0" || still != pod || pod == "" {
		t.Errorf("host and pod were the processes %s and %s; after the watchdog they are %s and %s", hung, pod, host, still)
	}
	if got := load.mounted(); got != load.mounts {
		t.Errorf("mounts:\n%s\nwant\n%s", got, load.mounts)
	}
}
