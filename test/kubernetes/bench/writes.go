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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// auditDelay is the time until the audit log has all requests, including late ones:
// intents of bound volumes are removed in batches.
const auditDelay = 13 * time.Second

// writes are requests that change something, by verb and resource: "patch
// volumeattachments/status". Leases, which are renewed by time and not by work,
// and questions about rights, which change nothing, are not counted.
type writes map[string]int

// intents are the writes of intents: the ConfigMaps of an account. The systems write no
// others.
type intents struct{ writes, bytes int }

// audited is what the audit log has of an account.
type audited struct {
	writes  writes
	intents intents
}

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

// auditSince counts the requests of an account since a mark. It waits for late ones.
func auditSince(dir, account string, mark int64) (audited, error) {
	time.Sleep(auditDelay)
	log, err := os.Open(auditLog(dir))
	if err != nil {
		return audited{}, err
	}
	defer func() { _ = log.Close() }()
	if _, err := log.Seek(mark, io.SeekStart); err != nil {
		return audited{}, err
	}
	counted := audited{writes: writes{}}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 8<<20) // a ConfigMap has up to 1 MiB, and is quoted
	for lines.Scan() {
		if err := counted.add(lines.Bytes(), account); err != nil {
			return audited{}, err
		}
	}
	return counted, lines.Err()
}

func (a *audited) add(line []byte, account string) error {
	var event struct {
		User struct {
			Username string `json:"username"`
		} `json:"user"`
		Verb      string `json:"verb"`
		ObjectRef struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
			Namespace   string `json:"namespace"`
			Name        string `json:"name"`
		} `json:"objectRef"`
		ResponseStatus struct {
			Code int `json:"code"`
		} `json:"responseStatus"`
		ResponseObject json.RawMessage `json:"responseObject"`
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
	a.writes[what]++
	if event.ObjectRef.Resource != "configmaps" || event.ResponseStatus.Code >= 300 {
		return nil
	}
	object := corev1.ConfigMap{}
	if event.Verb != "delete" {
		if err := json.Unmarshal(event.ResponseObject, &object); err != nil {
			return fmt.Errorf("audit log: object of %s: %w", what, err)
		}
	}
	a.intents.writes++
	a.intents.bytes += inEtcd("/registry/configmaps/"+event.ObjectRef.Namespace+"/"+event.ObjectRef.Name, &object)
	return nil
}

// inEtcd returns the bytes of a write of an object: the key, and the object in protobuf, as
// the API server encodes it, within an envelope that has its kind. A deletion has the key
// alone.
func inEtcd(key string, object *corev1.ConfigMap) int {
	if object.Name == "" {
		return len(key)
	}
	const envelope = len("k8s\x00") + 2 + 2 + len("v1") + 2 + len("ConfigMap") + 8
	object.ResourceVersion = "" // it is that of the key
	return len(key) + envelope + object.Size()
}

// each returns the writes and bytes for each of some items.
func (i intents) each(items int) string {
	return fmt.Sprintf("%.2f, %.0f B", float64(i.writes)/float64(items), float64(i.bytes)/float64(items))
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
