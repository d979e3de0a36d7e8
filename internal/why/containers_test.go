package why

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// statusWith is a running pod whose container has a state.
func statusWith(phase, state string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: default, uid: p1}
spec:
  containers: [{name: main, readinessProbe: {tcpSocket: {port: 80}}}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
status: {phase: %s, containerStatuses: [{name: main, %s}]}
`, phase, state)
}

func TestAsk_aPodWhoseContainersDoNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		phase, container string
		want             string
		state            State
	}{
		"it crashes": {"Running", "restartCount: 3, state: {waiting: {reason: CrashLoopBackOff, message: back-off}}, lastState: {terminated: {exitCode: 1, reason: Error}}",
			"container main fails after each restart", Stuck},
		"it cannot be started": {"Running", "restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 128, reason: StartError, message: no such file}}",
			"container main cannot be started", Stuck},
		"its command is missing": {"Running", "restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 127, reason: Error}}",
			"the program of container main, or one that it calls, is not found", Stuck},
		"its command is missing, and it is not restarted": {"Failed", "state: {terminated: {exitCode: 126, reason: Error}}",
			"the program of container main, or one that it calls, is not executable", Stuck},
		"a key of a secret is missing": {"Pending", "state: {waiting: {reason: CreateContainerConfigError, message: no key}}", "refers to something that is missing", Stuck},
		"its image is missing":         {"Pending", "state: {waiting: {reason: ImagePullBackOff}}", "the image of container main cannot be pulled", Stuck},
		"it has failed":                {"Failed", "state: {terminated: {exitCode: 3}}", "container main has failed", Stuck},
		"it is not ready":              {"Running", "ready: false, started: true, state: {running: {}}", "its readiness probe does not succeed", Waits},
		"it runs":                      {"Running", "ready: true, started: true, state: {running: {}}", "the pod runs; its volumes are mounted", Fine},
		"it has ended":                 {"Succeeded", "state: {terminated: {exitCode: 0}}", "has ended (Succeeded)", Fine},
	} {
		report, err := Ask(t.Context(), read(t, statusWith(c.phase, c.container), bound, pv), Subject{Kind: "pod", Namespace: "default", Name: "app"})
		if err != nil || !strings.Contains(report.Answer(), c.want) || report.State != c.state {
			t.Errorf("%s: %s: %q, %v; want %s: %q", name, report.State, report.Answer(), err, c.state, c.want)
		}
	}
}

// A mount outlives the daemon that serves it: the pod's status does not show it.
func TestAsk_aVolumeThatDoesNotAnswer(t *testing.T) {
	host := memoryHost{
		memoryReader: read(t, statusWith("Running", "ready: true, started: true, state: {running: {}}"), bound, pv),
		mounts:       []Mount{{Volume: "cache", Driver: "d.example", Path: "/a"}, {Volume: "data", Driver: "d.example", Path: "/b", Error: "transport endpoint is not connected"}},
	}
	report, err := Ask(t.Context(), host, Subject{Kind: "pod", Namespace: "default", Name: "app"})
	if err != nil || len(report.Findings) != 1 || report.State != Stuck || !strings.Contains(report.Answer(), "the volume data of the pod does not answer") ||
		!strings.Contains(report.Findings[0].Error, "not connected") {
		t.Errorf("%+v, %v", report, err)
	}
}

// What a host says of the volumes is reported if nothing else explains why the pod waits.
func TestAsk_aPodThatWaitsForAnotherPodsUseOfItsVolume(t *testing.T) {
	waiting := strings.Replace(statusWith("Pending", "ready: false, state: {waiting: {reason: ContainerCreating}}"), "status: {", "status: {"+
		"conditions: [{type: PodReadyToStartContainers, status: 'False', reason: WaitingForVolumes, message: pod web uses the volume in another volumeMode}], ", 1)
	report, err := Ask(t.Context(), memoryHost{memoryReader: read(t, waiting, bound, pv), registered: []string{"d.example"}},
		Subject{Kind: "pod", Namespace: "default", Name: "app"})
	if err != nil || len(report.Findings) != 1 || report.State != Waits || !strings.Contains(report.Findings[0].Error, "another volumeMode") {
		t.Errorf("%+v, %v", report, err)
	}
}

// Only a user can know that a driver will never return.
func TestAsk_namesAbandonForAStuckObjectOfAHost(t *testing.T) {
	gone := func(object string) string {
		return strings.Replace(object, "metadata: {", `metadata: {deletionTimestamp: "2026-05-01T12:00:00Z", `, 1)
	}
	goingPod := gone(statusWith("Running", "ready: true, started: true, state: {running: {}}"))
	for name, c := range map[string]struct {
		subject Subject
		objects []string
		want    string
	}{
		"a pod":   {Subject{Kind: "pod", Namespace: "default", Name: "app"}, []string{goingPod, bound, pv}, "'holdfast delete pod/app -n default --abandon'"},
		"a claim": {Subject{Kind: "pvc", Namespace: "default", Name: "data"}, []string{gone(bound), pv}, "'holdfast delete pvc/data -n default --abandon'"},
	} {
		host := memoryHost{memoryReader: read(t, c.objects...), calls: map[string][]Call{
			"Pod default/app":                    {{Step: "unpublish", Code: "Unavailable", Error: "the driver is not registered", Attempts: 4}},
			"PersistentVolumeClaim default/data": {{Step: "delete", Code: "Unavailable", Error: "the driver is not registered", Attempts: 4}},
		}}
		report, err := Ask(t.Context(), host, c.subject)
		if err != nil || len(report.Findings) == 0 || !strings.Contains(report.Findings[0].Do, c.want) {
			t.Errorf("%s: %+v, %v; want %s", name, report.Findings, err, c.want)
		}
		onCluster, err := Ask(t.Context(), host.memoryReader, c.subject)
		if err != nil || strings.Contains(fmt.Sprint(onCluster), "--abandon") {
			t.Errorf("%s of a cluster: %+v, %v", name, onCluster, err)
		}
	}
}

func TestFinding_stuck(t *testing.T) {
	for name, c := range map[string]struct {
		f    Finding
		want bool
	}{
		"something is missing":           {Finding{rank: cause}, true},
		"a call is rejected":             {Finding{rank: failing, Code: "InvalidArgument"}, true},
		"a call failed without a code":   {Finding{rank: failing}, true},
		"a call times out":               {Finding{rank: failing, Code: "DeadlineExceeded"}, false},
		"the driver is not available":    {Finding{rank: failing, Code: "Unavailable"}, false},
		"another operation is under way": {Finding{rank: failing, Code: "Aborted"}, false},
		"a claim that waits for a pod":   {Finding{rank: waiting}, false},
		"an effect of another finding":   {Finding{rank: following}, false},
	} {
		if got := c.f.stuck(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	denied := read(t)
	denied.denied = claims
	report, err := Ask(t.Context(), denied, Subject{Kind: "pvc", Namespace: "default", Name: "data"})
	if err != nil || report.State != Unknown {
		t.Errorf("an object that may not be read: %+v, %v", report, err)
	}
}

// deletionTimestamp of a pod is the end of its grace period.
func TestAsk_aDeletionBeganBeforeItsGracePeriod(t *testing.T) {
	going := strings.Replace(statusWith("Running", "ready: true, started: true, state: {running: {}}"), "metadata: {",
		`metadata: {deletionTimestamp: "2026-05-01T12:00:30Z", deletionGracePeriodSeconds: 30, finalizers: [example.com/keep], `, 1)
	report, err := Ask(t.Context(), memoryHost{memoryReader: read(t, going, bound, pv)}, Subject{Kind: "pod", Namespace: "default", Name: "app"})
	if err != nil || len(report.Findings) == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, finding := range report.Findings {
		if want := "2026-05-01T12:00:00Z"; !finding.Since.IsZero() && finding.Since.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q is since %v; want %s", finding.What, finding.Since, want)
		}
	}
}
