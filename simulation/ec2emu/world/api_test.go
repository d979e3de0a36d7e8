package world

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The rules of api.go that a reflective codec relies on.
func TestActions_areMethodsWithTaggedStructs(t *testing.T) {
	w := reflect.TypeFor[*World]()
	for _, action := range Actions() {
		m, ok := w.MethodByName(action)
		if !ok {
			t.Errorf("%s has no method", action)
			continue
		}
		if m.Type.NumIn() != 2 || m.Type.NumOut() != 2 || m.Type.Out(1) != reflect.TypeFor[error]() {
			t.Errorf("%s is %v", action, m.Type)
			continue
		}
		request, response := m.Type.In(1).Elem(), m.Type.Out(0).Elem()
		if request.Name() != action+"Request" || response.Name() != action+"Response" {
			t.Errorf("%s takes %v and answers %v", action, request, response)
		}
		if f, ok := request.FieldByName("DryRun"); !ok || f.Tag.Get("ec2") != "DryRun" {
			t.Errorf("%s has no dry run", action)
		}
		checkTypes(t, request, true)
		checkTypes(t, response, false)
	}
}

func checkTypes(t *testing.T, s reflect.Type, isRequest bool) {
	t.Helper()
	for i := range s.NumField() {
		f := s.Field(i)
		tag := f.Tag.Get("ec2")
		if tag == "" && !f.Anonymous {
			t.Errorf("%v.%s has no tag", s, f.Name)
		}
		if first := tag[:min(1, len(tag))]; first != "" && (first == strings.ToUpper(first)) != isRequest {
			t.Errorf("%v.%s has the tag %s", s, f.Name, tag)
		}
		kind := f.Type
		for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		switch kind.Kind() {
		case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64:
		case reflect.Struct:
			if kind != reflect.TypeFor[time.Time]() {
				checkTypes(t, kind, isRequest)
			}
		default:
			t.Errorf("%v.%s is a %v", s, f.Name, f.Type)
		}
	}
}

// A caller that gets a nil *Error in an error would take it for a failure.
func TestErrors_areNilOrErrors(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	if _, err := w.DescribeVolumes(&DescribeVolumesRequest{}); err != nil {
		t.Errorf("%#v", err)
	}
	_, err := w.DescribeVolumes(&DescribeVolumesRequest{DryRun: true})
	var e *Error
	if !errors.As(err, &e) || e.Status != 412 {
		t.Errorf("%#v", err)
	}
}

// Every action rejects a dry run without parameters.
func TestDryRun_neverSucceeds(t *testing.T) {
	w := start(t, Config{Knobs: Instant()})
	for _, action := range Actions() {
		m := reflect.ValueOf(w).MethodByName(action)
		r := reflect.New(m.Type().In(0).Elem())
		r.Elem().FieldByName("DryRun").SetBool(true)
		if out := m.Call([]reflect.Value{r}); out[1].IsNil() || !out[0].IsNil() {
			t.Errorf("%s succeeded", action)
		}
	}
}

func TestTakes_asText(t *testing.T) {
	for text, valid := range map[string]bool{
		"0s": true, "1.5s": true, "1s..3s": true, "2s~0.5": true,
		"": false, "x": false, "-1s": false, "3s..1s": false, "1s..": false, "2s~0": false, "2s~4": false, "2s~x": false,
	} {
		var takes Takes
		err := takes.UnmarshalText([]byte(text))
		if (err == nil) != valid {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if valid {
			if again, err := takes.MarshalText(); err != nil || string(again) != text {
				t.Errorf("%q became %q, %v", text, again, err)
			}
		}
	}
}

func TestPresets_areValidKnobs(t *testing.T) {
	w := start(t, Config{})
	for _, name := range []string{"instant", "bench", "realistic", "harsh"} {
		knobs, ok := Preset(name)
		if !ok {
			t.Errorf("no preset %s", name)
		}
		if err := w.SetKnobs(knobs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := w.SetKnobs(Knobs{Cooldown: "never"}); err == nil {
		t.Error("a cooldown rule that does not exist is accepted")
	}
	if _, err := w.AddFault(Fault{Kind: "plague"}); err == nil {
		t.Error("a fault that does not exist is accepted")
	}
}
