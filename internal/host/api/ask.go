package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Apply has manifests applied, all or none.
func (c *Client) Apply(ctx context.Context, files []manifest.File, options ApplyOptions) (ApplyResult, error) {
	named := make([]namedFile, 0, len(files))
	for _, file := range files {
		named = append(named, namedFile(file))
	}
	data, err := json.Marshal(named)
	if err != nil {
		return ApplyResult{}, err
	}
	if len(data) > maximumBody {
		return ApplyResult{}, fmt.Errorf("the manifests are %d bytes as they are sent, and one apply takes %d at most: apply them in parts", len(data), maximumBody)
	}
	query := url.Values{}
	if options.DryRun {
		query.Set("dryRun", "true")
	}
	if options.Create {
		query.Set("create", "true")
	}
	if options.Run {
		query.Set("run", "true")
	}
	var result ApplyResult
	err = c.call(ctx, request{method: http.MethodPost, path: ownPrefix + "apply", query: query, contentType: filesType,
		body: data}, &result)
	return result, err
}

// Delete begins the deletion of an object; ErrNotFound if there is none.
func (c *Client) Delete(
	ctx context.Context, kind store.Kind, namespace, name string, options DeleteOptions,
) (Deleted, error) {
	given := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}}
	if options.UID != "" || options.ResourceVersion != "" {
		given.Preconditions = &metav1.Preconditions{}
		if uid := types.UID(options.UID); uid != "" {
			given.Preconditions.UID = &uid
		}
		if version := options.ResourceVersion; version != "" {
			given.Preconditions.ResourceVersion = &version
		}
	}
	data, err := json.Marshal(given)
	if err != nil {
		return Deleted{}, err
	}
	path, err := objectPath(kind, namespace, name)
	if err != nil {
		return Deleted{}, err
	}
	query := url.Values{}
	if options.Abandon {
		query.Set(abandonQuery, "true")
	}
	answer, err := c.send(ctx, request{method: http.MethodDelete, path: path, query: query,
		contentType: "application/json", body: data})
	if err != nil {
		return Deleted{}, err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	var status metav1.Status
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
		return Deleted{}, fmt.Errorf("the host's answer: %w", c.explain(ctx, err))
	}
	deleted := Deleted{Kind: kind.Kind, Key: name, Gone: answer.StatusCode != http.StatusAccepted}
	if kind.Namespaced {
		deleted.Key = store.Key(namespace, name)
	}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			deleted.Waits = append(deleted.Waits, cause.Message)
		}
	}
	return deleted, nil
}

// Journal returns the journal's story of an object.
func (c *Client) Journal(ctx context.Context, kind, key string) (journal.Story, error) {
	var answer JournalAnswer
	err := c.own(ctx, "journal", url.Values{"kind": {kind}, "key": {key}}, &answer)
	return answer.Story, err
}

// WatchJournal calls handle with each entry after a sequence number, as Watch does.
func (c *Client) WatchJournal(ctx context.Context, after uint64, handle func(journal.Entry) error) error {
	query := url.Values{"watch": {"1"}, "after": {strconv.FormatUint(after, 10)}}
	return c.follow(ctx, request{method: http.MethodGet, path: ownPrefix + "journal", query: query},
		func(line []byte) error {
			var entry journal.Entry
			if err := json.Unmarshal(line, &entry); err != nil {
				return fmt.Errorf("the host's answer: %w", err)
			}
			return handle(entry)
		})
}

// Drivers lists the drivers that the host knows.
func (c *Client) Drivers(ctx context.Context) ([]Driver, error) {
	var drivers []Driver
	err := c.own(ctx, "drivers", nil, &drivers)
	return drivers, err
}

// State returns the progress of the controllers' work for an object.
func (c *Client) State(ctx context.Context, kind store.Kind, key string) ([]WorkState, error) {
	var states []WorkState
	err := c.own(ctx, "state", url.Values{"kind": {kind.Kind}, "key": {key}}, &states)
	return states, err
}

// Mounts asks whether the mounted volumes of a pod answer.
func (c *Client) Mounts(ctx context.Context, podKey string) ([]Mount, error) {
	var mounts []Mount
	err := c.own(ctx, "mounts", url.Values{"pod": {podKey}}, &mounts)
	return mounts, err
}

// Stats asks the driver how full a claim's volume is.
func (c *Client) Stats(ctx context.Context, claimKey string) (VolumeStats, error) {
	var stats VolumeStats
	err := c.own(ctx, "stats", url.Values{"claim": {claimKey}}, &stats)
	return stats, err
}

// Version returns the version of the host that answers.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var version Version
	err := c.own(ctx, "version", nil, &version)
	return version, err
}

func (c *Client) own(ctx context.Context, name string, query url.Values, into any) error {
	return c.call(ctx, request{method: http.MethodGet, path: ownPrefix + name, query: query}, into)
}

// Logs copies a container's output to out.
func (c *Client) Logs(ctx context.Context, what LogRequest, out io.Writer) error {
	if err := checkSegment("name", what.Pod); err != nil {
		return err
	}
	query := url.Values{}
	if what.Container != "" {
		query.Set("container", what.Container)
	}
	if what.Follow {
		query.Set("follow", "true")
	}
	if what.Previous {
		query.Set("previous", "true")
	}
	if what.Tail >= 0 {
		query.Set("tailLines", strconv.FormatInt(what.Tail, 10))
	}
	if !what.Since.IsZero() {
		query.Set("sinceTime", what.Since.Format(time.RFC3339Nano))
	}
	if what.Timestamps {
		query.Set("timestamps", "true")
	}
	path := "/api/v1/namespaces/" + what.Namespace + "/pods/" + what.Pod + "/log"
	answer, err := c.send(ctx, request{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	written := &writeError{Writer: out}
	if _, err := io.Copy(written, answer.Body); err != nil && written.err == nil {
		return c.explain(ctx, err)
	}
	return written.err
}

// writeError remembers a write error, to distinguish it from an error of the connection.
type writeError struct {
	io.Writer
	err error
}

func (w *writeError) Write(data []byte) (written int, err error) {
	written, w.err = w.Writer.Write(data)
	return written, w.err
}

// Hold has volumes mounted until Release.
func (c *Client) Hold(ctx context.Context, what HoldRequest) (HoldAnswer, error) {
	data, err := json.Marshal(what)
	if err != nil {
		return HoldAnswer{}, err
	}
	var answer HoldAnswer
	err = c.call(ctx, request{method: http.MethodPost, path: ownPrefix + "holds", contentType: "application/json",
		body: data}, &answer)
	return answer, err
}

// Release ends a hold. A limit that is not 0 bounds how long the host waits for
// that, in seconds; the release continues afterwards.
func (c *Client) Release(ctx context.Context, what ReleaseRequest, limit int64) error {
	query := limited(limit)
	if what.UID != "" {
		query.Set("uid", what.UID)
	}
	return c.call(ctx, request{method: http.MethodDelete, path: ownPrefix + "holds/" + what.Namespace + "/" + what.Name,
		query: query}, &struct{}{})
}

// Drain ends the processes of all pods and unmounts all volumes. A limit that is not
// 0 bounds how long the host waits for that, in seconds; it continues afterwards.
func (c *Client) Drain(ctx context.Context, limit int64) error {
	return c.call(ctx, request{method: http.MethodPost, path: ownPrefix + "drain", query: limited(limit)}, &struct{}{})
}

// limited is the query of a call that waits for a limit of seconds, if it is not 0.
func limited(seconds int64) url.Values {
	query := url.Values{}
	if seconds > 0 {
		query.Set("timeoutSeconds", strconv.FormatInt(seconds, 10))
	}
	return query
}

// Lease is a hold that ends with this process, however that ends.
type Lease struct {
	HoldAnswer
	body io.Closer
	stop context.CancelFunc
}

// Close ends the hold. The host releases the volumes without further calls.
func (l *Lease) Close() error {
	l.stop()
	return l.body.Close()
}

// Lease is Hold for as long as the connection lasts: until Close, or until this
// process ends. The context is for the request only.
func (c *Client) Lease(ctx context.Context, what HoldRequest) (*Lease, error) {
	data, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	asked := context.AfterFunc(ctx, stop)
	answer, err := c.send(life, request{ //nolint:bodyclose // Lease.Close closes it
		method: http.MethodPost, path: ownPrefix + "holds", query: url.Values{"lease": {leaseConnection}},
		contentType: "application/json", body: data,
	})
	if err != nil {
		stop()
		return nil, cmp.Or(ctx.Err(), err)
	}
	lease := &Lease{body: answer.Body, stop: stop}
	if err := json.NewDecoder(answer.Body).Decode(&lease.HoldAnswer); err != nil {
		return nil, fmt.Errorf("the host's answer: %w", errors.Join(err, lease.Close()))
	}
	asked()
	return lease, nil
}

// JournalSequence returns the sequence of the journal's newest entry. Later events have
// higher sequences.
func (c *Client) JournalSequence(ctx context.Context) (uint64, error) {
	var answer JournalAnswer
	err := c.own(ctx, "journal", url.Values{"after": {afterNow}}, &answer)
	return answer.Sequence, err
}
