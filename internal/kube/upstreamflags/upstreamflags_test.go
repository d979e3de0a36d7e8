package upstreamflags

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// command is a command line with own flags that upstream flags stand for.
func command() (*pflag.FlagSet, *Set) {
	flags := pflag.NewFlagSet("sidecars", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	for _, e := range entries() {
		if e.target == "" || flags.Lookup(e.target) != nil {
			continue
		}
		if e.boolean {
			flags.Bool(e.target, false, "")
		} else {
			flags.String(e.target, "", "")
		}
	}
	flags.String("timeout", "60s", "")
	return flags, Bind(flags)
}

func TestBind_setsHoldfastsFlag(t *testing.T) {
	cases := []struct{ given, flag, want string }{
		{"--http-endpoint=:8080", "metrics-address", ":8080"},
		{"--workers=20", "resizer-worker-threads", "20"},
		{"--resizer-workers=20", "resizer-worker-threads", "20"},
		{"--resize-timeout=30s", "resizer-timeout", "30s"},
		{"--modify-timeout=40s", "resizer-modify-timeout", "40s"},
		{"--provisioner-capacity-threads=3", "capacity-threads", "3"},
		{"--plugin-registration-path=/registration", "registration-dir", "/registration"},
		{"--health-port=9808", "driver-health-address", ":9808"},
		{"--v=5", "log-level", "debug"},
		{"-v=5", "log-level", "debug"},
		{"--v=2", "log-level", ""},
		{"--provisioner-strict-topology", "strict-topology", "true"},
		{"--provisioner-strict-topology=false", "strict-topology", "false"},
		{"--attacher-reconcile-sync=5m", "reconcile-sync", "5m"},
		{"--livenessprobe-probe-timeout=7s", "probe-timeout", "7s"},
	}
	for _, c := range cases {
		flags, set := command()
		if err := flags.Parse([]string{c.given}); err != nil {
			t.Errorf("%s: %v", c.given, err)
			continue
		}
		if got := flags.Lookup(c.flag).Value.String(); got != c.want {
			t.Errorf("%s makes --%s %q, want %q", c.given, c.flag, got, c.want)
		}
		if warnings := set.Warnings(); len(warnings) > 0 {
			t.Errorf("%s warns: %q", c.given, warnings)
		}
	}
}

func TestDoubled_spellsLongFlagsOnly(t *testing.T) {
	flags, _ := command()
	given := []string{"sidecars", "-v=5", "-v", "-workers=7", "--timeout=1m", "-feature-gates=Topology=true", "-unknown", "-", "", "--", "-workers=8"}
	want := []string{"sidecars", "-v=5", "-v", "--workers=7", "--timeout=1m", "--feature-gates=Topology=true", "-unknown", "-", "", "--", "-workers=8"}
	if got := Doubled(flags, given); !slices.Equal(got, want) {
		t.Errorf("the command line becomes %q, want %q", got, want)
	}
}

func TestBind_ignoresWithAReason(t *testing.T) {
	flags, set := command()
	err := flags.Parse([]string{
		"--kube-api-qps=50", "--kube-api-qps=50", "--feature-gates=Topology=true", "--feature-gates=Other=true", "--attacher-default-fstype=xfs",
		"--metrics-path=/metrics", "--automaxprocs", "--enable-pprof", "--resync-period=10m", "--stderrthreshold=INFO",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--kube-api-qps=50 ", "--feature-gates=Other=true ", "--attacher-default-fstype=xfs ", "--enable-pprof=true ", "--resync-period=10m ", "--stderrthreshold=INFO "}
	got := set.Warnings()
	if len(got) != len(want) {
		t.Fatalf("the warnings are %q", got)
	}
	for i, warning := range got {
		if !strings.HasPrefix(warning, want[i]) || !strings.Contains(warning, " is ignored: ") {
			t.Errorf("warning %d is %q, want one on %s", i, warning, want[i])
		}
	}
}

// TestBind_gatesOfAList sets the own flag of one gate, and warns of the others.
func TestBind_gatesOfAList(t *testing.T) {
	flags, set := command()
	cross := flags.Bool("cross-namespace-sources", false, "")
	if err := flags.Parse([]string{"--feature-gates=Topology=true,CrossNamespaceVolumeDataSource=true"}); err != nil {
		t.Fatal(err)
	}
	if !*cross || len(set.Warnings()) > 0 {
		t.Errorf("the flag is %v, with warnings %q", *cross, set.Warnings())
	}
	if err := flags.Parse([]string{"--feature-gates=CrossNamespaceVolumeDataSource=false,Other=true"}); err != nil {
		t.Fatal(err)
	}
	if warnings := set.Warnings(); *cross || len(warnings) != 1 || !strings.HasPrefix(warnings[0], "--feature-gates=Other=true is ignored") {
		t.Errorf("the flag is %v, with warnings %q", *cross, warnings)
	}
	if err := flags.Parse([]string{"--feature-gates=CrossNamespaceVolumeDataSource=perhaps"}); err == nil {
		t.Error("a gate that is neither true nor false is accepted")
	}
}

func TestBind_keepsAFlagOfTheSameName(t *testing.T) {
	flags := pflag.NewFlagSet("sidecars", pflag.ContinueOnError)
	own := flags.String("resync", "", "")
	flags.BoolP("verbose", "v", false, "")
	set := Bind(flags)
	if err := flags.Parse([]string{"--resync=1h", "-v"}); err != nil {
		t.Fatal(err)
	}
	if *own != "1h" || len(set.Warnings()) > 0 {
		t.Errorf("the own flag is %q, with warnings %q", *own, set.Warnings())
	}
}

func TestBind_rejectsFlagsWithAnotherMeaning(t *testing.T) {
	for _, given := range []string{"--master=https://10.0.0.1", "--health-port=http", "--health-port=99999", "--v=loud"} {
		flags, _ := command()
		if err := flags.Parse([]string{given}); err == nil {
			t.Errorf("%s is accepted", given)
		}
	}
	flags, _ := command()
	if err := flags.Parse([]string{"--master="}); err != nil {
		t.Errorf("--master= is refused: %v", err)
	}
}

func TestBind_isHiddenFromTheHelp(t *testing.T) {
	flags, _ := command()
	if usage := flags.FlagUsages(); strings.Contains(usage, "kube-api-qps") {
		t.Errorf("the help shows upstream flags:\n%s", usage)
	}
}

// TestEntries_coverTheSidecars goes through the flags of the releases that
// Holdfast replaces; those of the same name here are the command's own.
func TestEntries_coverTheSidecars(t *testing.T) {
	own := strings.Fields(`kubeconfig csi-address leader-election leader-election-namespace leader-election-lease-duration
		leader-election-renew-deadline leader-election-retry-period leader-election-labels metrics-address
		volume-name-prefix volume-name-uuid-length retry-interval-start retry-interval-max worker-threads timeout strict-topology
		cloning-protection-threads capacity-threads immediate-topology extra-create-metadata default-fstype enable-capacity capacity-for-immediate-binding capacity-poll-interval
		capacity-ownerref-level node-deployment node-deployment-immediate-binding controller-publish-readonly
		prevent-volume-mode-conversion max-entries reconcile-sync extra-modify-metadata handle-volume-inuse-error
		snapshot-name-prefix snapshot-name-uuid-length groupsnapshot-name-prefix groupsnapshot-name-uuid-length
		kubelet-registration-path probe-timeout monitor-interval`)
	upstream := strings.Fields(`kubeconfig csi-address leader-election leader-election-namespace leader-election-lease-duration
		leader-election-renew-deadline leader-election-retry-period leader-election-labels kube-api-qps kube-api-burst http-endpoint
		metrics-address metrics-path automaxprocs feature-gates
		master volume-name-prefix volume-name-uuid-length retry-interval-start retry-interval-max worker-threads cloning-protection-threads
		snapshot-orphan-sweep-interval capacity-threads timeout strict-topology immediate-topology extra-create-metadata default-fstype
		kube-api-capacity-qps kube-api-capacity-burst enable-capacity capacity-for-immediate-binding capacity-poll-interval
		capacity-ownerref-level node-deployment node-deployment-immediate-binding node-deployment-base-delay node-deployment-max-delay
		controller-publish-readonly prevent-volume-mode-conversion enable-pprof
		resync max-entries reconcile-sync max-grpc-log-length
		resync-period workers extra-modify-metadata resize-timeout modify-timeout handle-volume-inuse-error
		snapshot-name-prefix snapshot-name-uuid-length groupsnapshot-name-prefix groupsnapshot-name-uuid-length
		enable-distributed-snapshotting retry-crd-interval-max
		connection-timeout plugin-registration-path kubelet-registration-path health-port mode probe-timeout
		monitor-interval list-volumes-interval volume-list-add-interval node-list-add-interval enable-node-watcher v`)
	var known []string
	for _, e := range entries() {
		known = append(known, e.names()...)
	}
	for _, flag := range upstream {
		if !slices.Contains(own, flag) && !slices.Contains(known, flag) {
			t.Errorf("--%s is not understood", flag)
		}
	}
	seen := map[string]bool{}
	for _, name := range known {
		if seen[name] {
			t.Errorf("--%s is in the table twice", name)
		}
		seen[name] = true
	}
	for _, e := range entries() {
		if e.target == "" && e.why == "" && e.refuse == nil {
			t.Errorf("%v are ignored without a reason", e.flags)
		}
	}
}
