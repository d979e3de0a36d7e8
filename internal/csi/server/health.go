package server

import (
	"strings"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Kubernetes 1.37 drops a whole report of storage health that has more
// conditions, or longer texts, than this (validation of CSINode.status).
const (
	maximumConditions = 16
	reasonLimit       = 256
	messageLimit      = 1024
)

// fromHealth keeps the first of several problems with one status and reason,
// which CSI allows once per volume.
func fromHealth(volumeID string, problems []backend.HealthProblem) *csi.VolumeHealth {
	health := &csi.VolumeHealth{VolumeId: volumeID}
	for _, problem := range distinct(problems) {
		health.HealthStatuses = append(health.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: csi.VolumeHealthErrorType(problem.Kind), Reason: problem.Reason, Message: problem.Message,
		})
	}
	return health
}

func fromStorageHealth(problems []backend.HealthProblem) []*csi.NodeGetStorageHealthResponse_StorageBackendHealth {
	var conditions []*csi.NodeGetStorageHealthResponse_StorageBackendHealth
	for _, problem := range distinct(problems) {
		if len(conditions) == maximumConditions {
			break
		}
		conditions = append(conditions, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: storageStatus(problem.Kind), Reason: problem.Reason, Message: problem.Message,
		})
	}
	return conditions
}

// storageStatus has two values to say what HealthError says with three: data
// that is lost is data that cannot be reached.
func storageStatus(kind backend.HealthError) csi.StorageHealthErrorType {
	switch kind {
	case backend.HealthInaccessible, backend.HealthDataLoss:
		return csi.StorageHealthErrorType_STORAGE_UNREACHABLE
	}
	return csi.StorageHealthErrorType_STORAGE_DEGRADED
}

func distinct(problems []backend.HealthProblem) []backend.HealthProblem {
	type key struct {
		kind   backend.HealthError
		reason string
	}
	seen := map[key]bool{}
	var kept []backend.HealthProblem
	for _, problem := range problems {
		problem.Reason = truncate(problem.Reason, reasonLimit)
		problem.Message = truncate(problem.Message, messageLimit)
		if k := (key{problem.Kind, problem.Reason}); !seen[k] {
			seen[k] = true
			kept = append(kept, problem)
		}
	}
	return kept
}

// truncate shortens a text to at most limit bytes without splitting a character.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.TrimSpace(text[:limit])
}
