package cluster

import (
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestProcess_isNotAnotherOneOfTheSamePID(t *testing.T) {
	self, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]process{
		"started later":  {PID: self.PID, Start: self.Start + 1, Boot: self.Boot},
		"before a boot":  {PID: self.PID, Start: self.Start, Boot: "another"},
		"never recorded": {},
	} {
		running, err := other.running()
		if err != nil || running {
			t.Errorf("%s: running is %v, %v", name, running, err)
		}
		if err := other.kill(time.Second); err != nil { // or this test ends here
			t.Errorf("%s: %v", name, err)
		}
	}
	if running, err := self.running(); err != nil || !running {
		t.Errorf("this process: running is %v, %v", running, err)
	}
}

func TestProcess_killWaitsForTheEnd(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.kill(time.Minute); err != nil {
		t.Fatal(err)
	}
	if running, err := p.running(); err != nil || running {
		t.Errorf("after kill, running is %v, %v", running, err)
	}
	_ = cmd.Wait() // "signal: killed"
}

func TestChoosePlan_avoidsTheMachinesAddresses(t *testing.T) {
	used := []netip.Prefix{
		netip.MustParsePrefix("10.233.0.0/24"), netip.MustParsePrefix("10.232.7.7/32"), netip.MustParsePrefix("fd00::/64"),
	}
	p, err := choosePlan(used)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.whole().String(), "10.231.0.0/16"; got != want {
		t.Errorf("the network is %s, want %s", got, want)
	}
	if _, err := choosePlan([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}); err == nil {
		t.Error("a network was found where all is in use")
	}
}

func TestPlan_hasNoAddressTwice(t *testing.T) {
	p := plan{Second: 200}
	last := netip.PrefixFrom(p.address(0, 0), 24)
	for i := 1; i <= maxNodes; i++ {
		if p.pods(i).Overlaps(last) || p.pods(i).Overlaps(p.services()) {
			t.Errorf("the pods of node %d have %s, which others have", i, p.pods(i))
		}
		last = p.pods(i)
		if node := p.node(i); node == p.machine() || node == p.controlPlane() || !p.whole().Contains(node) {
			t.Errorf("node %d has the address %s", i, node)
		}
	}
}
