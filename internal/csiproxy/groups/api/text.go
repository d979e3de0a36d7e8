package api

import "strings"

// Text makes what a device or Windows calls itself fit for a message, in which a
// string is UTF-8: one odd byte in one serial number would fail the whole answer.
func Text(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
