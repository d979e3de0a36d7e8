package metrics

import "strings"

// LabelOf is the value of a label for a path of this machine, which may have any bytes but
// zero. A label has UTF-8 (Prometheus' data model), and client_golang ends the process when
// a collector gives it another value.
func LabelOf(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }
