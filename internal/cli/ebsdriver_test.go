package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/kube/upstreamflags"
)

// flagsOfEBSDriver are the flags of aws-ebs-csi-driver v1.64.0 (cmd/main.go,
// pkg/driver/options.go, and component-base's logs/api/v1), each with a value that its
// chart, its documentation or its default has.
func flagsOfEBSDriver() map[string]string {
	return map[string]string{
		"kubeconfig": "", "endpoint": "unix:///csi/csi.sock", "http-endpoint": "0.0.0.0:3301", "metrics-cert-file": "", "metrics-key-file": "",
		"enable-otel-tracing": "true", "metadata-sources": "imds,kubernetes,metadata-labeler", "user-agent-extra": "helm",
		"aws-sdk-debug-log": "true", "extra-tags": `team=a,claim={{ .PVCName | field "-" 1 }},`, "extra-volume-tags": "", "k8s-tag-cluster-id": "c",
		"warn-on-invalid-tag": "true", "batching": "true", "modify-volume-request-handler-timeout": "0s", "deprecated-metrics": "false",
		"enable-node-local-volumes": "true", "volume-attach-limit": "-1", "reserved-volume-attachments": "-1", "windows-host-process": "true",
		"legacy-xfs": "true", "csi-mount-point-prefix": "/var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/",
		"logtostderr": "true", "logging-format": "json", "log-flush-frequency": "5s", "v": "7", "vmodule": "",
		"log-text-split-stream": "false", "log-text-info-buffer-size": "0", "log-json-split-stream": "false", "log-json-info-buffer-size": "0",
		"version": "false",
	}
}

func TestDriver_acceptsTheFlagsOfTheEBSDriver(t *testing.T) {
	for name, value := range flagsOfEBSDriver() {
		var f ebsConfig
		flags := newDriverCommand("test").Flags()
		flags.SetOutput(io.Discard)
		if err := flags.Parse([]string{"--" + name + "=" + value}); err != nil {
			t.Errorf("--%s=%s: %v", name, value, err)
		}
		ofBackend := pflag.NewFlagSet("ebs", pflag.ContinueOnError)
		f.bind(ofBackend)
		if ofBackend.Lookup(name) == nil {
			continue
		}
		if err := ofBackend.Parse([]string{"--" + name + "=" + value}); err != nil || f.check() != nil {
			t.Errorf("--%s=%s: %v, %v", name, value, err, f.check())
		}
	}
}

// The driver's own settings that the flags of the EBS driver set.
func TestDriver_readsTheFlagsOfTheEBSDriver(t *testing.T) {
	for _, c := range []struct{ given, flag, want string }{
		{"--http-endpoint=:3301", "metrics-address", ":3301"},
		{"--modify-volume-request-handler-timeout=5s", "modify-volume-window", "5s"},
		{"--modify-volume-request-handler-timeout=0s", "modify-volume-window", "1ms"},
		{"--logging-format=json", "log-format", "json"},
		{"-v=7", "log-level", "debug"},
		{"-v=2", "log-level", "info"},
		{`--extra-tags=a=b, c={{ .PVCName | field "-" 1 }}=,`, "extra-tags", `a=b,c={{ .PVCName | field "-" 1 }}=`},
		{"--extra-tags=", "extra-tags", ""},
	} {
		flags := newDriverCommand("test").Flags()
		if err := flags.Parse([]string{c.given}); err != nil {
			t.Errorf("%s: %v", c.given, err)
		} else if got := flags.Lookup(c.flag).Value.String(); got != c.want {
			t.Errorf("%s makes --%s %q, want %q", c.given, c.flag, got, c.want)
		}
	}
	flags := newDriverCommand("test").Flags()
	flags.SetOutput(io.Discard)
	if err := flags.Parse([]string{"--extra-tags=team"}); err == nil || !strings.Contains(err.Error(), "KEY=VALUE") {
		t.Errorf("a tag without a value: %v", err)
	}
}

func TestEBSConfig_namesEachSourceOfMetadataOnce(t *testing.T) {
	config := ebsConfig{window: 1, lag: 1, stuck: 1, volumes: -1, reserved: -1, sources: []string{" IMDS", "Metadata-Labeler", "Kubernetes", "imds"}}
	if err := config.check(); err != nil || !slices.Equal(config.sources, []string{"imds", "metadata-labeler", "kubernetes"}) {
		t.Errorf("the sources are %q (%v)", config.sources, err)
	}
	config.sources = []string{"dmi"}
	if err := config.check(); err == nil {
		t.Error("an unknown source is accepted")
	}
}

// The page that answers users of the EBS driver, and the marks of its tables.
const pageOfEBSDriver = "../../docs/reference/aws-ebs-csi-driver.md"

func TestReference_tablesForUsersOfTheEBSDriver(t *testing.T) {
	flags := newDriverCommand("test").Flags()
	var rows strings.Builder
	rows.WriteString("| Flag there | Here |\n| --- | --- |\n")
	names := slices.Collect(maps.Keys(flagsOfEBSDriver()))
	flags.VisitAll(func(flag *pflag.Flag) { // also flags of klog that older versions had
		if flag.Hidden && !slices.Contains(names, flag.Name) {
			names = append(names, flag.Name)
		}
	})
	for _, name := range slices.Sorted(slices.Values(names)) {
		meaning := "the same"
		if flag := flags.Lookup(name); flag == nil {
			t.Errorf("--%s is unknown", name)
		} else if flag.Hidden {
			meaning = flag.Usage
		}
		fmt.Fprintf(&rows, "| `--%s` | %s |\n", name, meaning)
	}
	written(t, pageOfEBSDriver, "flags", rows.String())
	rows.Reset()
	rows.WriteString("| Variable there | Here |\n| --- | --- |\n")
	for _, v := range upstreamflags.EBSDriverVariables() {
		fmt.Fprintf(&rows, "| `%s` | %s |\n", v.Name, v.Meaning)
	}
	written(t, pageOfEBSDriver, "variables", rows.String())
}

// written compares a table of a page with the code. With UPDATE=1 it writes the table.
func written(t *testing.T, page, table, want string) {
	t.Helper()
	begin := "<!-- " + table + ": begin; " + t.Name() + " writes this with UPDATE=1 -->\n\n"
	end := "\n<!-- " + table + ": end -->\n"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(data), begin)
	got, after, ends := strings.Cut(rest, end)
	switch {
	case !begins || !ends:
		t.Fatalf("%s has no marks %q and %q", page, begin, end)
	case got == want:
	case os.Getenv("UPDATE") == "":
		t.Errorf("%s: the table %q differs from the code; run this test with UPDATE=1", page, table)
	default:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDriver_warnsOfVariablesWithoutEffect(t *testing.T) {
	set := map[string]string{"AWS_SAGEMAKER_ENDPOINT": "http://x", "AWS_REGION": "us-west-2"}
	got := upstreamflags.EBSDriverWarnings(func(name string) string { return set[name] })
	if len(got) != 1 || !strings.HasPrefix(got[0], "$AWS_SAGEMAKER_ENDPOINT is ignored: ") {
		t.Errorf("the warnings are %q", got)
	}
}
