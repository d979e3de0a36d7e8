package workload

import "strings"

// expand replaces $(NAME) by the variable's value as Kubernetes does: a name
// that is not defined stays as it is written, and $$ is one $.
func expand(text string, values map[string]string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		if after, escaped := strings.CutPrefix(rest, "$"); escaped {
			out.WriteString("$")
			text = after
			continue
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		value, defined := values[name]
		if !strings.HasPrefix(rest, "(") || !closed || !defined {
			out.WriteString("$")
			text = rest
			continue
		}
		out.WriteString(value)
		text = after
	}
}
