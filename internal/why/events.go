package why

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// warnings are an object's warning events with one of these reasons (any, if
// none is given), the latest first.
func (w *walk) warnings(kind Kind, object metav1.Object, reasons ...string) []corev1.Event {
	return w.eventsOf(kind, object, func(e corev1.Event) bool {
		return e.Type == corev1.EventTypeWarning && (len(reasons) == 0 || slices.Contains(reasons, e.Reason))
	})
}

func (w *walk) eventsOf(kind Kind, object metav1.Object, matches func(corev1.Event) bool) []corev1.Event {
	namespace := cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)
	selector := "involvedObject.kind=" + kind.Name() + ",involvedObject.name=" + object.GetName()
	var found []corev1.Event
	for _, e := range list[corev1.Event](w, events, namespace, selector) {
		about := e.InvolvedObject
		// A deleted object of the same name may have had events, too.
		same := about.Kind == kind.Name() && about.Name == object.GetName() && (about.UID == "" || object.GetUID() == "" ||
			about.UID == object.GetUID())
		if same && matches(e) {
			found = append(found, e)
		}
	}
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return last(b).Compare(last(a)) })
	return found
}

func first(e corev1.Event) time.Time {
	if !e.FirstTimestamp.IsZero() {
		return e.FirstTimestamp.Time
	}
	if !e.EventTime.IsZero() {
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

func last(e corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return first(e)
}

func times(e corev1.Event) int {
	if e.Series != nil {
		return int(e.Series.Count)
	}
	return max(int(e.Count), 1)
}

// failure makes one finding of the events of one reason: the message is the latest
// event's, attempts and time are of all events.
func failure(what string, kind Kind, list []corev1.Event) Finding {
	latest := list[0]
	f := Finding{What: what, Error: strings.TrimSpace(latest.Message), Since: first(latest)}
	f.Call, f.Code = callOf(latest.Reason, latest.Message)
	for _, e := range list {
		if e.Reason != latest.Reason {
			continue
		}
		f.Attempts += times(e)
		if first(e).Before(f.Since) {
			f.Since = first(e)
		}
	}
	f.Evidence = []string{fmt.Sprintf("event %s of %s %s", latest.Reason, kind.Name(),
		key(latest.InvolvedObject.Namespace, latest.InvolvedObject.Name))}
	return f
}

var (
	rpcText   = regexp.MustCompile(`code = (\w+) desc = `)
	codeNames = regexp.MustCompile(`\b(Canceled|Unknown|InvalidArgument|DeadlineExceeded|NotFound|AlreadyExists|PermissionDenied|ResourceExhausted|FailedPrecondition|Aborted|OutOfRange|Unimplemented|Internal|Unavailable|DataLoss|Unauthenticated): `)
	rpcNames  = regexp.MustCompile(`\b(CreateVolume|DeleteVolume|Controller(?:Publish|Unpublish|Expand|Modify)Volume|Node(?:Stage|Unstage|Publish|Unpublish|Expand)Volume|CreateSnapshot|DeleteSnapshot|NodeGetInfo)\b`)
)

// callOf returns the RPC that an event is about, and the code with which it failed.
// If the message does not name the RPC, it follows from the event's reason and from
// the kubelet's names of its steps.
func callOf(reason, message string) (call, code string) {
	if found := rpcText.FindStringSubmatch(message); found != nil {
		code = found[1]
	} else if found := codeNames.FindStringSubmatch(message); found != nil {
		code = found[1]
	} else if strings.Contains(message, "context deadline exceeded") {
		code = "DeadlineExceeded"
	}
	if found := rpcNames.FindString(message); found != "" {
		return found, code
	}
	for _, step := range []struct{ reason, text, call string }{
		{"", "MountVolume.MountDevice failed", "NodeStageVolume"}, {"", "MapVolume.SetUpDevice failed", "NodeStageVolume"},
		{"", "MountVolume.SetUp failed", "NodePublishVolume"}, {"", "MapVolume.MapPodDevice failed", "NodePublishVolume"},
		{"", "NodeExpandVolume failed", "NodeExpandVolume"}, {"", "UnmountDevice failed", "NodeUnstageVolume"},
		{"", "UnmountVolume.TearDown failed", "NodeUnpublishVolume"},
		{"ProvisioningFailed", "", "CreateVolume"}, {"VolumeFailedDelete", "", "DeleteVolume"},
		{"FailedAttachVolume", "", "ControllerPublishVolume"},
		{"FailedDetachVolume", "", "ControllerUnpublishVolume"}, {"VolumeResizeFailed", "", "ControllerExpandVolume"},
		{"FileSystemResizeFailed", "", "NodeExpandVolume"},
		{"VolumeModifyFailed", "", "ControllerModifyVolume"}, {"SnapshotCreationFailed", "", "CreateSnapshot"},
		{"SnapshotContentCreationFailed", "", "CreateSnapshot"},
		{"SnapshotDeleteError", "", "DeleteSnapshot"},
	} {
		if code != "" && (step.reason == "" || step.reason == reason) && strings.Contains(message, step.text) {
			return step.call, code
		}
	}
	return "", code
}

// adviceFor returns the advice for a code (CSI spec 1.13, "Error Scheme").
func adviceFor(code string) string {
	switch code {
	case "InvalidArgument":
		return "The driver rejects the request: correct the parameters that it names (of the class, or the volume's attributes)."
	case "NotFound":
		return "The driver does not know the volume, the snapshot or the node: check with 'holdfast csi ListVolumes' or in the storage system whether it still exists."
	case "AlreadyExists":
		return "An object of that name or path exists with other properties: find and remove it, or use another name."
	case "PermissionDenied":
		return "Give the identity that the driver uses the right that it names."
	case "Unauthenticated":
		return "Put valid credentials into the secret that the class or the driver refers to."
	case "ResourceExhausted":
		return "Free space: delete volumes or snapshots, raise the quota, or add storage; the call is retried without further action."
	case "FailedPrecondition":
		return "The state of the volume does not allow the call: end its other use first, as the message says."
	case "Aborted":
		return "Another operation on the same volume is under way; wait until it ends."
	case "OutOfRange":
		return "Request a size that the driver supports."
	case "Unimplemented":
		return "The driver does not support the call; 'holdfast csi info' shows its capabilities."
	case "DeadlineExceeded", "Canceled":
		return "The driver does not answer in time: check its log, and whether its storage system answers."
	case "Unavailable":
		return "The driver or its storage system cannot be reached: check that its process runs and its socket answers ('holdfast csi info')."
	case "DataLoss":
		return "The driver reports that data are lost: stop using the volume and restore it from a snapshot or a backup."
	case "Internal", "Unknown":
		return "The driver failed and names no reason: read its log of that time."
	}
	return ""
}
