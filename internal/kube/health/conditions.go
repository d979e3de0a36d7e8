package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// The API server rejects a whole status if one condition exceeds these limits
// (Kubernetes 1.37, core/v1 VolumeHealthStatus).
const (
	maximumConditions = 16
	reasonBytes       = 256
	messageBytes      = 1024
)

// unspecified replaces an empty reason, which violates CSI 1.13 and which the API
// rejects.
const unspecified = "Unspecified"

// conditionsOf converts a driver's report on one volume to the conditions of a
// claim's status: each (status, reason) once, the most severe first, in an order
// that does not depend on the driver's. A healthy volume has none.
func conditionsOf(entries []*csi.VolumeHealth_VolumeHealthEntry) []corev1.VolumeHealthCondition {
	var conditions []corev1.VolumeHealthCondition
	for _, entry := range entries {
		conditions = append(conditions, conditionOf(entry))
	}
	slices.SortFunc(conditions, func(a, b corev1.VolumeHealthCondition) int {
		return cmp.Or(severity(a.Status)-severity(b.Status),
			strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
	})
	conditions = slices.CompactFunc(conditions, sameKey)
	return conditions[:min(len(conditions), maximumConditions)]
}

func conditionOf(entry *csi.VolumeHealth_VolumeHealthEntry) corev1.VolumeHealthCondition {
	reason, message := entry.GetReason(), entry.GetMessage()
	status, known := statusOf(entry.GetStatus())
	if !known {
		// The API lacks a value for it, and without a condition the volume would be
		// healthy. So it gets the mildest known status and the number in the reason.
		message = strings.TrimSuffix(fmt.Sprintf("status %d of the driver (%s) is not known to this version of Holdfast: %s",
			entry.GetStatus(), reason, message), ": ")
		reason = fmt.Sprintf("UnknownStatus%d%s", entry.GetStatus(), reason)
	}
	return corev1.VolumeHealthCondition{Status: status, Reason: reasonOf(reason), Message: truncate(message, messageBytes)}
}

func statusOf(status csi.VolumeHealthErrorType) (found corev1.VolumeHealthStatusType, known bool) {
	switch status {
	case csi.VolumeHealthErrorType_DEGRADED:
		return corev1.VolumeHealthDegraded, true
	case csi.VolumeHealthErrorType_INACCESSIBLE:
		return corev1.VolumeHealthInaccessible, true
	case csi.VolumeHealthErrorType_DATA_LOSS:
		return corev1.VolumeHealthDataLoss, true
	}
	return corev1.VolumeHealthDegraded, false
}

// severity orders conditions, so that the limit drops the mildest.
func severity(status corev1.VolumeHealthStatusType) int {
	return slices.Index([]corev1.VolumeHealthStatusType{
		corev1.VolumeHealthDataLoss, corev1.VolumeHealthInaccessible, corev1.VolumeHealthDegraded,
	}, status)
}

// reasonOf makes a reason valid. CSI recommends CamelCase and guarantees nothing.
// The API server requires [A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])? (metav1 validation
// of condition reasons) and otherwise rejects the whole patch.
func reasonOf(reason string) string {
	clean := strings.Map(func(r rune) rune {
		if letter(r) || '0' <= r && r <= '9' || strings.ContainsRune("_,:", r) {
			return r
		}
		return '_'
	}, reason)
	clean = strings.TrimLeftFunc(clean, func(r rune) bool { return !letter(r) && (r < '0' || r > '9') })
	if clean != "" && !letter(rune(clean[0])) {
		clean = "Reason" + clean
	}
	clean = strings.TrimRight(truncate(clean, reasonBytes), ",:")
	return cmp.Or(clean, unspecified)
}

func letter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

// truncate shortens a text to at most limit bytes of valid UTF-8 without splitting a
// character.
func truncate(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

func sameKey(a, b corev1.VolumeHealthCondition) bool {
	return a.Status == b.Status && a.Reason == b.Reason
}

// conditionsIn returns the conditions in a claim's status.
func conditionsIn(claim *corev1.PersistentVolumeClaim) []corev1.VolumeHealthCondition {
	if claim.Status.HealthStatus == nil {
		return nil
	}
	return claim.Status.HealthStatus.HealthConditions
}

// sameSet compares without order: the list is a map in the API.
func sameSet(a, b []corev1.VolumeHealthCondition, same func(a, b corev1.VolumeHealthCondition) bool) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(one corev1.VolumeHealthCondition) bool {
		return !slices.ContainsFunc(b, func(other corev1.VolumeHealthCondition) bool { return same(one, other) })
	})
}

func identical(a, b corev1.VolumeHealthCondition) bool { return a == b }
