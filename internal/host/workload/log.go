package workload

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/host/workload/inside"
)

// LogFile is the path of an attempt's log, or of its rotated part.
func (s Shim) LogFile(attempt int) (current, aside string) {
	name := filepath.Join(s.Logs, strconv.Itoa(attempt))
	return name + inside.LogSuffix, name + inside.AsideSuffix
}

// removeOldLogs keeps those of this attempt and of the one before.
func (s Shim) removeOldLogs(attempt int) {
	entries, err := os.ReadDir(s.Logs)
	if err != nil {
		return // the next attempt tries again
	}
	for _, entry := range entries {
		number, _, found := strings.Cut(entry.Name(), inside.LogSuffix)
		n, err := strconv.Atoi(number)
		if found && err == nil && n < attempt-1 {
			_ = os.Remove(filepath.Join(s.Logs, entry.Name()))
		}
	}
}
