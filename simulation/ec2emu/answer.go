package ec2emu

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// namespace is EC2's, with the only version of the API that the SDKs use.
const (
	apiVersion = "2016-11-15"
	namespace  = "http://ec2.amazonaws.com/doc/" + apiVersion + "/"
	// timeFormat is how EC2 writes times.
	timeFormat = "2006-01-02T15:04:05.000Z"
)

// encodeAnswer writes the answer of an action: nil is an action without output.
func encodeAnswer(action, requestID string, answer any) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "<%sResponse xmlns=%q><requestId>%s</requestId>", action, namespace, requestID)
	if v := reflect.Indirect(reflect.ValueOf(answer)); !v.IsValid() || v.NumField() == 0 {
		out.WriteString("<return>true</return>")
	} else {
		encodeStruct(&out, v)
	}
	fmt.Fprintf(&out, "</%sResponse>", action)
	return out.Bytes()
}

// encodeError writes an error as EC2 does.
func encodeError(requestID, code, message string) []byte {
	var out bytes.Buffer
	out.WriteString("<Response><Errors><Error>")
	element(&out, "Code", code)
	element(&out, "Message", message)
	out.WriteString("</Error></Errors>")
	element(&out, "RequestID", requestID)
	out.WriteString("</Response>")
	return out.Bytes()
}

func element(out *bytes.Buffer, name, text string) {
	out.WriteString("<" + name + ">")
	_ = xml.EscapeText(out, []byte(text)) // a bytes.Buffer does not fail
	out.WriteString("</" + name + ">")
}

func encodeStruct(out *bytes.Buffer, v reflect.Value) {
	for i := range v.NumField() {
		described := v.Type().Field(i)
		if described.Anonymous && described.Tag.Get(tag) == "" && described.Type.Kind() == reflect.Struct {
			encodeStruct(out, v.Field(i))
			continue
		}
		if name := fieldName(described); name != "" && !absent(described, v.Field(i)) {
			encodeField(out, name, v.Field(i))
		}
	}
}

// absent reports whether a field is omitted: a nil pointer, an empty string without
// "always", a zero time, an empty list with "omitempty". An empty number or boolean would
// break the SDK's decoding of the whole answer, and the SDK distinguishes an empty text
// from a missing one.
func absent(described reflect.StructField, v reflect.Value) bool {
	_, option, _ := strings.Cut(described.Tag.Get(tag), ",")
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil()
	case reflect.String:
		return v.Len() == 0 && option != "always"
	case reflect.Slice:
		return v.Len() == 0 && option == "omitempty"
	}
	at, isTime := reflect.TypeAssert[time.Time](v)
	return isTime && at.IsZero()
}

func encodeField(out *bytes.Buffer, name string, v reflect.Value) {
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Slice {
		encodeValue(out, name, v)
		return
	}
	out.WriteString("<" + name + ">")
	for i := range v.Len() {
		encodeValue(out, "item", reflect.Indirect(v.Index(i)))
	}
	out.WriteString("</" + name + ">")
}

func encodeValue(out *bytes.Buffer, name string, v reflect.Value) {
	switch at, isTime := reflect.TypeAssert[time.Time](v); {
	case isTime:
		element(out, name, at.UTC().Format(timeFormat))
	case v.Kind() == reflect.Struct:
		out.WriteString("<" + name + ">")
		encodeStruct(out, v)
		out.WriteString("</" + name + ">")
	default:
		element(out, name, scalarText(v))
	}
}

func scalarText(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	default:
		panic(fmt.Sprintf("ec2emu: an element cannot be a %s", v.Type())) // a mistake in the answer structs
	}
}
