package content

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Taken is when a snapshot was taken, as its driver says. A driver that does
// not say has just done it; the beginning of 1970 is what an unset time becomes.
func Taken(told *timestamppb.Timestamp, now time.Time) time.Time {
	if !told.IsValid() || told.AsTime().Unix() <= 0 {
		return now
	}
	return told.AsTime()
}

// Failure is the part of a status that tells why a content is not ready.
func Failure(message string) map[string]any {
	return map[string]any{
		"readyToUse": false,
		"error":      map[string]any{"time": metav1.Now(), "message": message},
	}
}
