package chart

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// answers say what a value of the chart of the AWS EBS CSI driver is here: names of
// values in backquotes, or what replaces it. A name may have the wildcards of path.Match;
// the first answer that matches counts.
var answers = []struct{ theirs, here string }{
	{"image.*", "`image`, `windows.image`"},
	{"imagePullSecrets", "`imagePullSecrets`"},
	{"customLabels", "`commonLabels`"},
	{"nameOverride", "the release's name"},
	{"fullnameOverride", "`fullnameOverride`"},
	{"fips", "`ebs.fips`"},
	{"proxy.http_proxy", "`ebs.proxy.url`"},
	{"proxy.no_proxy", "`ebs.proxy.noProxy`"},
	{"awsAccessSecret.name", "`ebs.credentials.secret`, which must exist"},
	{"awsAccessSecret.keyId", "`ebs.credentials.keyID`"},
	{"awsAccessSecret.accessKey", "`ebs.credentials.accessKey`"},

	{"sidecars.volumemodifier.*", "ignored. Use VolumeAttributesClasses, or that sidecar in `controller.initContainers`"},
	{"sidecars.metadataLabeler.*", "`ebs.labelNodes`: the controller does this work"},
	{"sidecars.snapshotter.forceEnable", "ignored: the controller waits until the CRDs are installed. `installSnapshotClasses` sets whether classes are created"},
	{"sidecars.*.leaderElection", "`controller.extraArgs` with `--leader-election-…`: one lease for all controllers"},
	{"sidecars.nodeDriverRegistrar.additionalArgs", "`node.extraArgs`: the node's process registers itself"},
	{"sidecars.nodeDriverRegistrar.*", "ignored: the node's process registers itself"},
	{"sidecars.livenessProbe.*", "ignored: the process serves `/healthz` and `/readyz` at `metricsPort`"},
	{"sidecars.*.additionalArgs", "`controllers.timeout`, `controllers.workerThreads`, `controllers.retryIntervalStart`, `controllers.retryIntervalMax`; others in `controller.extraArgs`, under the sidecars' names"},
	{"sidecars.*.additionalClusterRoleRules", "`rbac.secrets.cluster` and `rbac.secrets.namespaces` for secrets; other rights by a ClusterRole of your own"},
	{"sidecars.*.resources", "`controller.resources`: one container does the work"},
	{"sidecars.*.env", "`controller.extraEnv`"},
	{"sidecars.*.logLevel", "`log.level`"},
	{"sidecars.*", "ignored: Holdfast has no sidecars"},

	{"controller.batching", "ignored: calls that describe are always joined"},
	{"controller.volumeModificationFeature", "ignored: as for the sidecar volumemodifier"},
	{"controller.enableNodeLocalVolumes", "`ebs.nodeLocalVolumes`"},
	{"controller.additionalArgs", "`controller.extraArgs`"},
	{"controller.sdkDebugLog", "`ebs.sdkDebugLog`"},
	{"controller.loggingFormat", "`log.format`"},
	{"controller.logLevel", "`log.level`: `debug` from 4 on"},
	{"controller.affinity", "`controller.affinity`"},
	{"controller.defaultFsType", "`controllers.defaultFSType`"},
	{"controller.env", "`controller.extraEnv`"},
	{"controller.envFrom", "`controller.extraEnvFrom`"},
	{"controller.extraCreateMetadata", "`controllers.extraCreateMetadata`"},
	{"controller.extraVolumeTags", "`ebs.extraTags`: tags volumes and snapshots, as there"},
	{"controller.httpEndpoint", "`metricsPort`"},
	{"*.enableMetrics", "ignored: metrics are always served at `metricsPort`"},
	{"*.enablePrometheusAnnotations", "`podAnnotations` with `prometheus.io/scrape` and `prometheus.io/port`"},
	{"*.serviceMonitor", "`monitoring.podMonitor`, a PodMonitor for all pods"},
	{"controller.k8sTagClusterId", "`ebs.clusterID`"},
	{"controller.userAgentExtra", "`ebs.userAgentExtra`"},
	{"controller.nodeSelector", "`controller.nodeSelector`"},
	{"*.deploymentAnnotations", "a post-renderer of helm"},
	{"*.daemonSetAnnotations", "a post-renderer of helm"},
	{"*.podAnnotations", "`podAnnotations`, for all pods"},
	{"*.podLabels", "`commonLabels`, for all objects"},
	{"controller.podDisruptionBudget", "`controller.podDisruptionBudget.enabled`, `controller.podDisruptionBudget.maxUnavailable`"},
	{"controller.priorityClassName", "`controller.priorityClassName`"},
	{"controller.region", "`ebs.region`"},
	{"controller.replicaCount", "`controller.replicas`"},
	{"*.revisionHistoryLimit", "ignored: 10, the default of Kubernetes"},
	{"*.socketDirVolume", "ignored: the socket is on a volume in memory"},
	{"*.probeDirVolume", "ignored: Holdfast has no such directory"},
	{"controller.updateStrategy", "`controller.updateStrategy`"},
	{"controller.resources", "`controller.resources`"},
	{"controller.serviceAccount", "`controller.serviceAccount`, with `.create`, `.name` and `.annotations`; the token is always mounted"},
	{"controller.tolerations", "`controller.tolerations`"},
	{"controller.topologySpreadConstraints", "`controller.topologySpreadConstraints`"},
	{"*.securityContext", "ignored: the chart sets the least that the process needs"},
	{"*.containerSecurityContext", "ignored: the chart sets the least that the process needs"},
	{"controller.volumes", "`controller.extraVolumes`"},
	{"controller.volumeMounts", "`controller.extraVolumeMounts`"},
	{"controller.initContainers", "`controller.initContainers`"},
	{"controller.otelTracing", "`controller.extraEnv` with `OTEL_SERVICE_NAME` and `OTEL_EXPORTER_OTLP_ENDPOINT`"},
	{"controller.dnsConfig", "`controller.dnsConfig`"},

	{"node.selinux", "`csiDriver.seLinuxMount`"},
	{"node.env", "`node.extraEnv`"},
	{"node.envFrom", "`node.extraEnvFrom`"},
	{"node.kubeletPath", "`kubeletDir`, `windows.kubeletDir`"},
	{"node.loggingFormat", "`log.format`"},
	{"node.logLevel", "`log.level`: `debug` from 4 on"},
	{"node.priorityClassName", "`node.priorityClassName`, `windows.priorityClassName`"},
	{"node.additionalArgs", "`node.extraArgs`, `windows.extraArgs`"},
	{"node.affinity", "`node.affinity`"},
	{"node.nodeSelector", "`node.nodeSelector`, `windows.nodeSelector`"},
	{"node.terminationGracePeriodSeconds", "`node.terminationGracePeriodSeconds`"},
	{"node.tolerateAllTaints", "`node.tolerations`, `windows.tolerations`: all by default"},
	{"node.tolerations", "`node.tolerations`, `windows.tolerations`"},
	{"node.resources", "`node.resources`, `windows.resources`"},
	{"node.serviceAccount", "`node.serviceAccount`, with `.create`, `.name` and `.annotations`. `ebs.removeStartupTaint=false` in place of `disableMutation`"},
	{"node.enableLinux", "`node.nodeSelector`: the DaemonSet for Linux is always there"},
	{"node.enableWindows", "`windows.enabled`"},
	{"node.metadataSources", "`ebs.metadataSources`"},
	{"node.legacyXFS", "`ebs.legacyXFS`"},
	{"node.reservedVolumeAttachments", "`ebs.reservedVolumeAttachments`"},
	{"node.volumeAttachLimit", "`ebs.volumeAttachLimit`"},
	{"node.updateStrategy", "`node.updateStrategy`"},
	{"node.hostNetwork", "`node.hostNetwork`"},
	{"node.namespaceOverride", "a second release in that namespace, as for `additionalDaemonSets`"},
	{"node.volumes", "`node.extraVolumes`"},
	{"node.volumeMounts", "`node.extraVolumeMounts`"},
	{"node.initContainers", "`node.initContainers`"},
	{"node.otelTracing", "`node.extraEnv` with `OTEL_SERVICE_NAME` and `OTEL_EXPORTER_OTLP_ENDPOINT`"},
	{"node.dnsConfig", "`node.dnsConfig`"},

	{"additionalDaemonSets", "a release for each, with `controller.enabled=false`, `csiDriver.create=false`, no classes, and its own `node.nodeSelector` and `ebs.volumeAttachLimit`"},
	{"nodeComponentOnly", "`controller.enabled=false`"},
	{"storageClasses", "`storageClasses`"},
	{"defaultStorageClass.enabled", "`storageClasses[0].default=true`, and `storageClasses[0].name=ebs-csi-default-sc` for its name"},
	{"volumeSnapshotClasses", "`volumeSnapshotClasses`"},
	{"useOldCSIDriver", "`csiDriver.create=false`, which keeps an object that exists"},
	{"nodeAllocatableUpdatePeriodSeconds", "`ebs.allocatableUpdatePeriodSeconds`: 0 in place of -1"},
	{"debugLogs", "`log.level=debug` and `ebs.sdkDebugLog=true`"},
	{"helmTester.*", "ignored: the chart has no Helm tests"},
}

// theirValues are the values of the chart of aws-ebs-csi-driver v1.64.0, down to the
// second level, and to the third for the sidecars.
func theirValues(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/aws-ebs-csi-driver-v1.64.0.values")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// answer returns the index of the answer for a value, -1 if there is none.
func answer(t *testing.T, value string) int {
	t.Helper()
	for i, a := range answers {
		// A star stands for any text of a path.
		pattern, name := strings.ReplaceAll(a.theirs, ".", "/"), strings.ReplaceAll(value, ".", "/")
		matched, err := path.Match(pattern, name)
		if err != nil {
			t.Fatal(err)
		}
		if matched || strings.HasSuffix(pattern, "/*") && strings.HasPrefix(name, strings.TrimSuffix(pattern, "*")) {
			return i
		}
	}
	return -1
}

// Every value of the other chart has an answer, every answer is of use, and the values
// that it names exist.
func TestEBSValues_haveAnAnswerEach(t *testing.T) {
	used := map[int]bool{}
	for _, value := range theirValues(t) {
		i := answer(t, value)
		if i < 0 {
			t.Errorf("%s has no answer", value)
		}
		used[i] = true
	}
	names := schemaNames(t)
	named := regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z]+)+)(?:=[a-z]+)?`")
	for i, a := range answers {
		if !used[i] {
			t.Errorf("%s is not a value of the other chart", a.theirs)
		}
		for _, match := range named.FindAllStringSubmatch(a.here, -1) {
			if !names[match[1]] && !strings.HasPrefix(match[1], "prometheus.") {
				t.Errorf("the answer for %s names %s, which is not a value", a.theirs, match[1])
			}
		}
	}
}

func TestEBSValues_areOnThePage(t *testing.T) {
	const file = "../../../docs/reference/aws-ebs-csi-driver.md"
	begin := fmt.Sprintf("<!-- values: begin; %s of deploy/test/chart writes this with UPDATE=1 -->\n\n", t.Name())
	const end = "\n<!-- values: end -->\n"
	var rows strings.Builder
	rows.WriteString("| Value there | Here |\n| --- | --- |\n")
	for _, a := range answers {
		fmt.Fprintf(&rows, "| `%s` | %s |\n", a.theirs, a.here)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), begin)
	got, after, ends := strings.Cut(rest, end)
	switch {
	case !begins || !ends:
		t.Fatalf("%s lacks the marks of the table", file)
	case got == rows.String():
	case os.Getenv("UPDATE") == "":
		t.Errorf("%s differs from the answers; run this test with UPDATE=1", file)
	default:
		if err := os.WriteFile(file, []byte(before+begin+rows.String()+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
