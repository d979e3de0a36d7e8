package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// ListOptions choose objects.
type ListOptions struct {
	Namespace     string // empty: all
	LabelSelector string
	FieldSelector string
	// ResourceVersion is the version that a Watch continues from; empty: it begins with
	// the existing objects.
	ResourceVersion string
}

func (o ListOptions) query() url.Values {
	query := url.Values{}
	for name, text := range map[string]string{
		"labelSelector": o.LabelSelector, "fieldSelector": o.FieldSelector, "resourceVersion": o.ResourceVersion,
	} {
		if text != "" {
			query.Set(name, text)
		}
	}
	return query
}

// List is many objects of a kind.
type List struct {
	Items []store.Object
	// ResourceVersion is the version that a Watch continues from.
	ResourceVersion string
}

// Get reads an object; ErrNotFound if there is none. The namespace is ignored for a
// kind that has none.
func (c *Client) Get(ctx context.Context, kind store.Kind, namespace, name string) (store.Object, error) {
	path, err := objectPath(kind, namespace, name)
	if err != nil {
		return nil, err
	}
	object := kind.New()
	if err := c.call(ctx, request{method: http.MethodGet, path: path}, object); err != nil {
		return nil, err
	}
	return object, nil
}

// List reads the objects of a kind that the selectors match, all without selectors.
func (c *Client) List(ctx context.Context, kind store.Kind, options ListOptions) (List, error) {
	var answer struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: pathOf(kind, options.Namespace, ""),
		query: options.query()}, &answer)
	if err != nil {
		return List{}, err
	}
	list := List{ResourceVersion: answer.Metadata.ResourceVersion, Items: make([]store.Object, 0, len(answer.Items))}
	for _, data := range answer.Items {
		object, err := kind.Decode(data)
		if err != nil {
			return List{}, fmt.Errorf("the host's answer: %w", err)
		}
		list.Items = append(list.Items, object)
	}
	return list, nil
}

// WatchEvent is an object that came (ADDED), changed (MODIFIED) or went (DELETED).
type WatchEvent struct {
	Type   watch.EventType
	Object store.Object
}

// Watch calls handle with each change until the context ends, handle fails, or the
// host ends. The error is store.ErrExpired if the version is too old.
func (c *Client) Watch(
	ctx context.Context, kind store.Kind, options ListOptions, handle func(WatchEvent) error,
) error {
	query := options.query()
	query.Set("watch", "1")
	return c.follow(ctx, request{method: http.MethodGet, path: pathOf(kind, options.Namespace, ""), query: query},
		func(line []byte) error {
			var frame struct {
				Type   watch.EventType `json:"type"`
				Object json.RawMessage `json:"object"`
			}
			if err := json.Unmarshal(line, &frame); err != nil {
				return fmt.Errorf("the host's answer: %w", err)
			}
			if frame.Type == watch.Error {
				var status metav1.Status
				if err := json.Unmarshal(frame.Object, &status); err != nil {
					return fmt.Errorf("the host's answer: %w", err)
				}
				return &statusError{status}
			}
			object, err := kind.Decode(frame.Object)
			if err != nil {
				return fmt.Errorf("the host's answer: %w", err)
			}
			return handle(WatchEvent{Type: frame.Type, Object: object})
		})
}

// errEnded is a long answer that the host ended.
var errEnded = errors.New("the host ended")

// follow calls handle with each line of an answer.
func (c *Client) follow(ctx context.Context, what request, handle func(line []byte) error) error {
	answer, err := c.send(ctx, what)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // the rest is not needed
	reader := bufio.NewReader(answer.Body)
	for {
		line, err := reader.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && ctx.Err() == nil:
			return errEnded
		case err != nil:
			return c.explain(ctx, err)
		}
		if err := handle(line); err != nil {
			return err
		}
	}
}
