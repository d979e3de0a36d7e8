package message

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/csi/message/messagetest"
)

// The required fields are compared with the comments of csi.proto itself, in
// the module the driver is built with.
func TestRequiredFields_areThoseOfTheSpecification(t *testing.T) {
	desired := requiredByComments(t)
	if len(desired) < 25 {
		t.Fatalf("found required fields in %d messages of csi.proto only", len(desired))
	}
	for _, request := range messagetest.Filled(t, "x") {
		visit(request.Message.ProtoReflect().Descriptor(), func(message protoreflect.MessageDescriptor) {
			have := requiredFields(message.FullName())
			for _, name := range desired[message.FullName()] {
				field := message.Fields().ByName(name)
				// An absent number is 0, the offset of the beginning. A driver knows the
				// members of a group, and no parameters change nothing.
				known := name == "snapshot_ids" || name == "mutable_parameters"
				if known || field.Kind() == protoreflect.BoolKind || field.Kind() == protoreflect.Int64Kind {
					continue
				}
				if !slices.Contains(have, name) {
					t.Errorf("%s.%s is required by csi.proto and not by Check", message.FullName(), name)
				}
			}
			for _, name := range have {
				if !slices.Contains(desired[message.FullName()], name) {
					t.Errorf("%s.%s is required by Check and not by csi.proto", message.FullName(), name)
				}
			}
		})
	}
}

func visit(message protoreflect.MessageDescriptor, with func(protoreflect.MessageDescriptor)) {
	with(message)
	for i := range message.Fields().Len() {
		if field := message.Fields().Get(i); field.Kind() == protoreflect.MessageKind && !field.IsMap() {
			visit(field.Message(), with)
		}
	}
}

// requiredByComments reads which fields of csi.proto say that they are REQUIRED.
func requiredByComments(t *testing.T) map[protoreflect.FullName][]protoreflect.Name {
	t.Helper()
	directory, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/container-storage-interface/spec").Output()
	if err != nil {
		t.Fatalf("find the CSI specification: %v", err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(directory)), "csi.proto"))
	if err != nil {
		t.Fatal(err)
	}
	opening := regexp.MustCompile(`^(message|enum|oneof|service|extend)\s+([\w.]+)\s*\{`)
	field := regexp.MustCompile(`^(?:repeated )?[\w.<>, ]+?\s+(\w+) = \d+`)
	required := regexp.MustCompile(`(?i)this (field is|is a) REQUIRED( field)?`)
	found := map[protoreflect.FullName][]protoreflect.Name{}
	scope, comment := []string{}, ""
	for line := range strings.Lines(string(source)) {
		line = strings.TrimSpace(line)
		switch match := opening.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "//"):
			comment += " " + strings.TrimSpace(line[2:])
			continue
		case match != nil:
			if !strings.HasSuffix(line, "}") {
				scope = append(scope, match[2])
			}
		case line == "}" && len(scope) > 0:
			scope = scope[:len(scope)-1]
		case len(scope) > 0 && required.MatchString(comment):
			if match := field.FindStringSubmatch(line); match != nil {
				message := protoreflect.FullName("csi.v1." + strings.Join(scope, "."))
				found[message] = append(found[message], protoreflect.Name(match[1]))
			}
		}
		comment = ""
	}
	return found
}
