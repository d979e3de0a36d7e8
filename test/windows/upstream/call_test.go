//go:build windows

package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/protoadapt"
)

// called has the methods of all clients, by their type and name, and whether a
// test has called them.
type called struct {
	mu      sync.Mutex
	methods map[string]bool
}

// all has the calls of this process: they are complete only at its end.
var all = called{methods: map[string]bool{}} //nolint:gochecknoglobals // see above

func (c *called) add(client any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range reflect.TypeOf(client).NumMethod() {
		name := fmt.Sprintf("%T.%s", client, reflect.TypeOf(client).Method(i).Name)
		c.methods[group(client)+name] = c.methods[group(client)+name] || strings.HasSuffix(name, ".Close")
	}
}

func (c *called) mark(client any, method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.methods[fmt.Sprintf("%s%T.%s", group(client), client, method)] = true
}

// group names the clients of one version.
func group(client any) string {
	return path.Base(path.Dir(reflect.TypeOf(client).Elem().PkgPath())) + " "
}

// TestMain fails when a whole run has left a method of a client uncalled.
func TestMain(m *testing.M) {
	code := m.Run()
	if flag.Lookup("test.run").Value.String() == "" {
		for name, done := range all.methods {
			if !done {
				fmt.Println("no test calls", name)
				code = 1
			}
		}
		if len(all.methods) < 100 {
			fmt.Println("the clients have", len(all.methods), "methods only")
			code = 1
		}
	}
	os.Exit(code)
}

// fields are those of a message, by their names in the proto.
type fields map[string]any

// call calls a method of one of upstream's clients by its name, so that one test
// serves all versions, whose types all differ.
func call(t *testing.T, client any, method string, request fields) (fields, error) {
	t.Helper()
	m := reflect.ValueOf(client).MethodByName(method)
	if !m.IsValid() {
		t.Fatalf("%T has no %s", client, method)
	}
	all.mark(client, method)
	sent := reflect.New(m.Type().In(1).Elem()) // the messages of some versions are of the first Go API of protobuf
	message := protoadapt.MessageV2Of(sent.Interface().(protoadapt.MessageV1))
	if request == nil {
		request = fields{}
	}
	text, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(text, message); err != nil {
		t.Fatalf("%s of %T: %v", method, client, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	results := m.Call([]reflect.Value{reflect.ValueOf(ctx), sent})
	if err, failed := results[1].Interface().(error); failed {
		return nil, err
	}
	text, err = protojson.MarshalOptions{
		UseProtoNames: true, EmitUnpopulated: true,
	}.Marshal(protoadapt.MessageV2Of(results[0].Interface().(protoadapt.MessageV1)))
	if err != nil {
		t.Fatal(err)
	}
	response := fields{}
	if err := json.Unmarshal(text, &response); err != nil {
		t.Fatal(err)
	}
	if failure, has := response["error"]; has && failure != "" {
		t.Errorf("%s answers an error in its message: %v", method, failure)
	}
	return response, nil
}

// must is call for a call that has to succeed.
func must(t *testing.T, client any, method string, request fields) fields {
	t.Helper()
	response, err := call(t, client, method, request)
	if err != nil {
		t.Fatalf("%T %s %v: %v", client, method, request, err)
	}
	return response
}

// number reads a field that JSON may have as text.
func (f fields) number(t *testing.T, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(fmt.Sprint(f[name]), 10, 64)
	if value, ok := f[name].(float64); ok {
		return int64(value)
	}
	if err != nil {
		t.Fatalf("%s is %v", name, f[name])
	}
	return n
}

func (f fields) text(t *testing.T, name string) string {
	t.Helper()
	text, ok := f[name].(string)
	if !ok {
		t.Fatalf("%s is %v", name, f[name])
	}
	return text
}

func (f fields) list(t *testing.T, name string) []any {
	t.Helper()
	list, ok := f[name].([]any)
	if !ok {
		t.Fatalf("%s is %v", name, f[name])
	}
	return list
}

// simulated asks the control of the simulated machine.
func simulated(t *testing.T, method, path string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, os.Getenv("HOLDFAST_SIMULATED")+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %s %v", method, path, response.Status, answer, err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatal(err)
		}
	}
}

// addDisk puts a disk into the machine.
func addDisk(t *testing.T, disk fields) (number int64) {
	t.Helper()
	var answer struct{ Number int64 }
	simulated(t, http.MethodPost, "/disks", disk, &answer)
	t.Cleanup(func() {
		request, err := http.NewRequest(http.MethodDelete, fmt.Sprintf("%s/disks/%d", os.Getenv("HOLDFAST_SIMULATED"), answer.Number), nil)
		if err == nil {
			response, err := http.DefaultClient.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
		}
	})
	return answer.Number
}

// opened closes a client with its test.
func opened[T interface{ Close() error }](t *testing.T, open func() (T, error)) any {
	t.Helper()
	client, err := open()
	if err != nil {
		t.Fatal(err)
	}
	all.add(client)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
