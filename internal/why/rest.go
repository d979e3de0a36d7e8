package why

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pageSize is the maximum of objects in one answer of the API.
const pageSize = "500"

// maximumAnswer bounds one answer in bytes.
const maximumAnswer = 256 << 20

// REST reads objects over HTTP from a server with the form of the Kubernetes API.
type REST struct {
	// Base is the server's URL, without a slash at its end.
	Base   string
	Client *http.Client
}

// Get implements Reader.
func (r REST) Get(ctx context.Context, kind Kind, namespace, name string) ([]byte, error) {
	return r.Read(ctx, kind.Path(namespace, name), nil)
}

// List implements Reader.
func (r REST) List(ctx context.Context, kind Kind, namespace, selector string) ([]json.RawMessage, error) {
	var all []json.RawMessage
	query := url.Values{"limit": {pageSize}}
	if selector != "" {
		query.Set("fieldSelector", selector)
	}
	for {
		data, err := r.Read(ctx, kind.Path(namespace, ""), query)
		if err != nil {
			return nil, err
		}
		var page struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Metadata.Continue == "" {
			return all, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// Read reads a path of the API, with a query. It returns ErrNotFound and ErrForbidden as
// List does.
func (r REST) Read(ctx context.Context, path string, query url.Values) ([]byte, error) {
	address := strings.TrimSuffix(r.Base, "/") + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	answer, err := r.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maximumAnswer))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode == http.StatusNotFound:
		return nil, ErrNotFound
	case answer.StatusCode == http.StatusForbidden, answer.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%w: %s", ErrForbidden, messageOf(data))
	case answer.StatusCode >= http.StatusBadRequest:
		return nil, fmt.Errorf("%s: %s", answer.Status, messageOf(data))
	}
	return data, nil
}

// messageOf returns the message of an error answer.
func messageOf(data []byte) string {
	var status metav1.Status
	if json.Unmarshal(data, &status) == nil && status.Message != "" {
		return status.Message
	}
	return fmt.Sprintf("%.200s", data)
}
