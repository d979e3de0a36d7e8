package ec2emu

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tag names the parameter or element of a field in the structs of requests and
// answers.
const tag = "ec2"

// common reports whether every request may have a parameter; older signatures and
// presigned requests have some.
func common(name string) bool {
	switch name {
	case "Action", "Version", "AWSAccessKeyId", "Signature", "SignatureMethod",
		"SignatureVersion", "Timestamp", "SecurityToken":
		return true
	}
	return strings.HasPrefix(name, "X-Amz-")
}

// noOperation is a parameter that EC2 accepts in every action. It has no effect for an
// action that has no field for it.
const noOperation = "IncludeManagedResources"

// parameter is a request's parameters as a tree: Filter.1.Value.2=x is x in
// Filter, 1, Value, 2.
type parameter struct {
	name  string // in full
	value *string
	below map[string]*parameter
}

// parameterTree sorts form into a tree.
func parameterTree(form url.Values) (*parameter, error) {
	root := &parameter{}
	for name, values := range form {
		if common(name) {
			continue
		}
		if len(values) > 1 {
			return nil, badRequest("InvalidParameterCombination", "The parameter "+name+" is given more than once")
		}
		at := root
		for part := range strings.SplitSeq(name, ".") {
			at = at.child(part)
		}
		at.value = &values[0]
	}
	return root, nil
}

func (p *parameter) child(part string) *parameter {
	if child := p.below[part]; child != nil {
		return child
	}
	name := part
	if p.name != "" {
		name = p.name + "." + part
	}
	if p.below == nil {
		p.below = map[string]*parameter{}
	}
	p.below[part] = &parameter{name: name}
	return p.below[part]
}

// first is the full name of the smallest parameter at or below p that has a value, so that
// messages do not change between calls.
func (p *parameter) first() string {
	if p.value != nil {
		return p.name
	}
	best := ""
	for _, child := range p.below {
		if name := child.first(); best == "" || name < best {
			best = name
		}
	}
	return best
}

// decodeQuery reads the parameters of form into the struct that request points to. Like
// EC2 it rejects unknown parameters. Lists are flat and 1-based (Name.1, Name.2); gaps in
// the numbers are skipped.
func decodeQuery(form url.Values, request any) error {
	tree, err := parameterTree(form)
	if err != nil {
		return err
	}
	return decodeStruct(tree, reflect.ValueOf(request).Elem())
}

func decodeStruct(p *parameter, into reflect.Value) error {
	if p.value != nil {
		return unknownParameter(p.name)
	}
	known := fieldsOf(into)
	for _, part := range sortedKeys(p.below) {
		child := p.below[part]
		field, ok := known[part]
		if !ok && child.name == noOperation {
			continue
		}
		if !ok {
			return unknownParameter(child.first())
		}
		if err := decodeField(child, field); err != nil {
			return err
		}
	}
	return nil
}

// fieldsOf is the fields of a struct by the names of their tags; those of an
// embedded struct count as its own.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		described := v.Type().Field(i)
		if described.Anonymous && described.Tag.Get(tag) == "" && described.Type.Kind() == reflect.Struct {
			for name, field := range fieldsOf(v.Field(i)) {
				fields[name] = field
			}
			continue
		}
		if name := fieldName(described); name != "" {
			fields[name] = v.Field(i)
		}
	}
	return fields
}

func fieldName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get(tag), ",")
	if name == "-" || !field.IsExported() {
		return ""
	}
	return name
}

func decodeField(p *parameter, into reflect.Value) error {
	switch {
	case into.Kind() == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return decodeField(p, into.Elem())
	case into.Kind() == reflect.Slice:
		return decodeList(p, into)
	case into.Type() == reflect.TypeFor[time.Time]():
		return decodeTime(p, into)
	case into.Kind() == reflect.Struct:
		return decodeStruct(p, into)
	}
	return decodeScalar(p, into)
}

func decodeList(p *parameter, into reflect.Value) error {
	if p.value != nil {
		return unknownParameter(p.name)
	}
	numbers := make([]int, 0, len(p.below))
	for part, child := range p.below {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || strconv.Itoa(n) != part {
			return unknownParameter(child.first())
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	list := reflect.MakeSlice(into.Type(), len(numbers), len(numbers))
	for i, n := range numbers {
		if err := decodeField(p.below[strconv.Itoa(n)], list.Index(i)); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

func decodeScalar(p *parameter, into reflect.Value) error {
	if p.value == nil {
		return unknownParameter(p.first())
	}
	if len(p.below) > 0 {
		return badRequest("InvalidParameterCombination", "The parameter "+p.name+" is a value, not a structure")
	}
	text := *p.value
	switch into.Kind() {
	case reflect.String:
		into.SetString(text)
	case reflect.Bool:
		switch strings.ToLower(text) {
		case "true", "false":
			into.SetBool(strings.EqualFold(text, "true"))
		default:
			return invalidValue(p, "true or false")
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, into.Type().Bits())
		if err != nil {
			return invalidValue(p, "an integer")
		}
		into.SetInt(n)
	default:
		panic(fmt.Sprintf("ec2emu: a parameter cannot be a %s", into.Type())) // a mistake in the request structs
	}
	return nil
}

func decodeTime(p *parameter, into reflect.Value) error {
	if p.value == nil {
		return unknownParameter(p.first())
	}
	at, err := time.Parse(time.RFC3339, *p.value)
	if err != nil {
		return invalidValue(p, "a time such as 2006-01-02T15:04:05Z")
	}
	into.Set(reflect.ValueOf(at.UTC()))
	return nil
}

func unknownParameter(name string) error {
	return badRequest("UnknownParameter", "The parameter "+name+" is not recognized")
}

func invalidValue(p *parameter, expected string) error {
	return badRequest("InvalidParameterValue",
		fmt.Sprintf("Value (%s) for parameter %s is invalid. Expected %s", *p.value, p.name, expected))
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
