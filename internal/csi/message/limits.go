// Package message has CSI's rules for every message: the limits of requests, and the
// fields that must not be shown. The driver checks the requests that it gets, the
// command line those that it sends.
package message

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Size limits of fields in bytes (CSI spec 1.13, "Size Limits", and the fields'
// own comments).
const (
	// StringLimit is the limit of texts without a specific rule.
	StringLimit     = 128
	nodeIDLimit     = 256
	mapLimit        = 4 << 10 // keys and values together
	mountFlagsLimit = 4 << 10 // all flags together
	// pathLimit is PATH_MAX of Linux without the final NUL: CSI asks for the
	// operating system's maximum, and Kubernetes' paths do pass 128 bytes.
	pathLimit = 4095
)

// Check refuses a request that breaks a rule which CSI sets for every plugin:
// sizes, required fields, negative numbers, forbidden characters. The error
// names the field by its path, and no value of a secret.
func Check(request proto.Message) error { return checkMessage("", request.ProtoReflect()) }

func checkMessage(path string, message protoreflect.Message) error {
	descriptor := message.Descriptor()
	if err := checkRequired(path, message); err != nil {
		return err
	}
	fields := descriptor.Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !message.Has(field) {
			continue
		}
		if err := checkField(join(path, string(field.Name())), field, message.Get(field)); err != nil {
			return err
		}
	}
	return nil
}

func checkField(path string, field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch {
	case field.IsMap():
		return checkMap(path, field, value.Map())
	case field.IsList():
		return checkList(path, field, value.List())
	}
	return checkValue(path, field, value)
}

func checkList(path string, field protoreflect.FieldDescriptor, list protoreflect.List) error {
	if field.Name() == "mount_flags" {
		return checkMountFlags(path, list)
	}
	for i := range list.Len() {
		if err := checkValue(fmt.Sprintf("%s[%d]", path, i), field, list.Get(i)); err != nil {
			return err
		}
	}
	return nil
}

func checkValue(path string, field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return checkMessage(path, value.Message())
	case protoreflect.StringKind:
		return checkString(path, field.Name(), value.String())
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		if value.Int() < 0 {
			return fmt.Errorf("%s is %d; it must not be negative", path, value.Int())
		}
	}
	return nil
}

func checkString(path string, field protoreflect.Name, text string) error {
	isPath := strings.HasSuffix(string(field), "path")
	limit := StringLimit
	switch {
	case isPath:
		limit = pathLimit
	case field == "node_id":
		limit = nodeIDLimit
	}
	if len(text) > limit {
		return fmt.Errorf("%s has %d bytes; the limit is %d", path, len(text), limit)
	}
	// volume_path is where a volume is searched: see atPath.
	if isPath && field != "volume_path" && !filepath.IsAbs(text) {
		return fmt.Errorf("%s is not an absolute path", path)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s is not valid UTF-8", path)
	}
	if at := strings.IndexFunc(text, forbidden); at >= 0 {
		return fmt.Errorf("%s has the control character %U at byte %d", path, firstRune(text[at:]), at)
	}
	return nil
}

func firstRune(text string) rune {
	r, _ := utf8.DecodeRuneInString(text)
	return r
}

// forbidden characters are those that CSI bans from the names of volumes,
// snapshots and groups. Holdfast's IDs and paths do not have them either.
func forbidden(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	}
	return r < 0x20 || (0x7f <= r && r <= 0x9f)
}

// checkMap counts keys and values together. It names keys, never values: the
// map may be one of secrets.
func checkMap(path string, field protoreflect.FieldDescriptor, entries protoreflect.Map) error {
	size := 0
	var failed error
	entries.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		size += len(key.String()) + len(value.String())
		if IsSecret(field) && !isSecretKey(key.String()) {
			failed = fmt.Errorf("%s has a key that is not made of letters, digits, '-', '_' and '.' alone", path)
		}
		return true
	})
	if size > mapLimit {
		return fmt.Errorf("%s has %d bytes of keys and values; the limit is %d", path, size, mapLimit)
	}
	return failed
}

func isSecretKey(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	})
}

func checkMountFlags(path string, flags protoreflect.List) error {
	size := 0
	for i := range flags.Len() {
		flag := flags.Get(i).String()
		size += len(flag)
		if strings.ContainsFunc(flag, forbidden) {
			return fmt.Errorf("%s[%d] has a control character", path, i)
		}
	}
	if size > mountFlagsLimit {
		return fmt.Errorf("%s has %d bytes; the limit is %d", path, size, mountFlagsLimit)
	}
	return nil
}

// checkRequired refuses a message without a field that CSI marks REQUIRED.
func checkRequired(path string, message protoreflect.Message) error {
	descriptor := message.Descriptor()
	for _, name := range requiredFields(descriptor.FullName()) {
		if field := descriptor.Fields().ByName(name); field == nil || !message.Has(field) {
			return fmt.Errorf("%s is missing", join(path, string(name)))
		}
	}
	if choice := requiredChoice(descriptor.FullName()); len(choice) > 0 && !hasAny(message, choice) {
		return fmt.Errorf("%s: one of %s must be set", orRequest(path), joinNames(choice))
	}
	return nil
}
