package csiproxy_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1alpha1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1beta1"
)

const page = "../../docs/reference/csi-proxy-api.md"

func files() map[string]protoreflect.FileDescriptor {
	return map[string]protoreflect.FileDescriptor{
		"v1alpha1": v1alpha1.File_proto_csiproxy_v1alpha1_api_proto,
		"v1beta1":  v1beta1.File_proto_csiproxy_v1beta1_api_proto,
		"v1":       v1.File_proto_csiproxy_v1_api_proto,
	}
}

// The page of the API has every call with the versions that it is in, and every
// field with its number.
func TestDocs_haveEveryCallAndField(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for version, file := range files() {
		methods := file.Services().Get(0).Methods()
		for i := range methods.Len() {
			method := methods.Get(i)
			row := rowOf(string(text), string(method.Name()))
			column := slices.Index([]string{"v1alpha1", "v1beta1", "v1"}, version)
			if row == nil || row[column+1] == "–" {
				t.Errorf("%s has not %s of %s", page, method.Name(), version)
			}
			for _, message := range []protoreflect.MessageDescriptor{method.Input(), method.Output()} {
				missing(t, string(text), version, string(method.Name()), message)
			}
		}
	}
}

// missing complains of the fields that no row of the call has.
func missing(t *testing.T, text, version, method string, message protoreflect.MessageDescriptor) {
	t.Helper()
	var rows strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| `"+method+"` |") {
			rows.WriteString(line)
		}
	}
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		if want := fmt.Sprintf("`%s:%d`", field.Name(), field.Number()); !strings.Contains(rows.String(), want) {
			t.Errorf("%s has not %s of %s in %s", page, want, method, version)
		}
	}
}

// rowOf returns the cells of the call's first row.
func rowOf(text, method string) []string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| `"+method+"` |") {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			return cells
		}
	}
	return nil
}

// The page has the times that members of alpha, beta and stable versions stay.
func TestDocs_haveThePolicyOfVersions(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"12 months or 3 releases", "9 months or 3 releases", "no time", "**all** nodes first", "A downgrade below"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %q", page, want)
		}
	}
}
