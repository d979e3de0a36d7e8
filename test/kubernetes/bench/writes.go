package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// auditDelay is the time until the audit log has all requests, including late ones:
// intents of bound volumes are removed in batches.
const auditDelay = 13 * time.Second

// writes are requests that change something, by verb and resource: "patch
// volumeattachments/status". Leases, which are renewed by time and not by work,
// and questions about rights, which change nothing, are not counted.
type writes map[string]int

// auditMark is a position in the audit log.
func auditMark(dir string) (int64, error) {
	info, err := os.Stat(auditLog(dir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// writesSince counts the requests of an account since a mark. It waits for late ones.
func writesSince(dir, account string, mark int64) (writes, error) {
	time.Sleep(auditDelay)
	log, err := os.Open(auditLog(dir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	if _, err := log.Seek(mark, io.SeekStart); err != nil {
		return nil, err
	}
	counted := writes{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if err := counted.add(lines.Bytes(), account); err != nil {
			return nil, err
		}
	}
	return counted, lines.Err()
}

func (w writes) add(line []byte, account string) error {
	var event struct {
		User struct {
			Username string `json:"username"`
		} `json:"user"`
		Verb      string `json:"verb"`
		ObjectRef struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
		} `json:"objectRef"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("audit log: %w: %s", err, line)
	}
	if event.User.Username != account || event.ObjectRef.Resource == "leases" || strings.HasPrefix(event.ObjectRef.Resource, "selfsubject") {
		return nil
	}
	what := event.Verb + " " + event.ObjectRef.Resource
	if event.ObjectRef.Subresource != "" {
		what += "/" + event.ObjectRef.Subresource
	}
	w[what]++
	return nil
}

// split sums the writes of objects and of events, per item.
func (w writes) split(items int) (objects, events float64) {
	for what, count := range w {
		if strings.HasSuffix(what, " events") {
			events += float64(count)
		} else {
			objects += float64(count)
		}
	}
	return objects / float64(items), events / float64(items)
}

// String lists them.
func (w writes) String() string {
	var parts []string
	for what, count := range w {
		parts = append(parts, fmt.Sprintf("%d %s", count, what))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func isConflict(err error) bool { return apierrors.IsConflict(err) }
