package host_test

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// On a machine whose mounts are private, no unmount reaches the mount namespace
// of a container. Did one keep the volumes of others that were mounted when it
// started, none of them could be detached before its end.
func TestPrivateMounts_containersKeepNoVolumesOfOthers(t *testing.T) {
	m := newMachine(t)
	m.attributes = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // it makes every mount private
	m.start()
	m.apply(firstClass + "---" + claimText("c", "first", 16, "") + "---" + heldPod("first", "c"))
	m.running("first")
	m.apply(strings.ReplaceAll(restingPod, "NAME", "second"))
	m.running("second")
	if len(m.loops()) == 0 {
		t.Fatal("no loop device is attached: this test shows nothing")
	}
	m.clear([]string{"first"}, []string{"c"})
	m.running("second")
	m.kill()
	m.start()
	m.apply(claimText("late", "first", 16, "") + "---" + heldPod("third", "late"))
	m.running("third")
	m.clear([]string{"second", "third"}, []string{"late"})
	m.until("no process is left", 10*time.Second, func() bool { return len(m.shims()) == 0 })
}

const restingPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: none, command: [sleep, "1000"]}]
`
