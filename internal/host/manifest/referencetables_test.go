package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// Reference writes what becomes of every field of every kind, as tables for the
// documentation.
func Reference() string {
	var out strings.Builder
	writeTable(&out, "Every kind", "", newContract())
	for _, kind := range Kinds() {
		own := contractOf(kind.Kind)
		for path := range newContract().rules {
			delete(own.rules, path)
		}
		writeTable(&out, kind.Kind, kind.GroupVersion().String(), own)
	}
	return out.String()
}

func writeTable(out *strings.Builder, title, version string, table *contract) {
	fmt.Fprintf(out, "### %s\n\n", title)
	if version != "" {
		fmt.Fprintf(out, "`apiVersion: %s`\n\n", version)
	}
	out.WriteString("| In | Fields | Here |\n| --- | --- | --- |\n")
	last := ""
	for _, row := range rowsOf(table) {
		parent := row.parent
		if parent == last {
			parent = ""
		}
		last = row.parent
		fmt.Fprintf(out, "| %s | %s | %s |\n", code(parent), strings.Join(row.fields, ", "), row.meaning)
	}
	out.WriteString("\n")
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

type row struct {
	parent  string
	fields  []string
	meaning string
}

// rowsOf has one row for the fields of one parent that share a meaning and a note.
func rowsOf(table *contract) (rows []row) {
	for _, path := range parentsFirst(table) {
		rule := table.rules[path]
		meaning := rule.meaning.String()
		if rule.note != "" {
			meaning += ": " + rule.note
		}
		parent, name := cutLast(path)
		at := slices.IndexFunc(rows, func(r row) bool { return r.parent == parent && r.meaning == meaning })
		if at < 0 {
			at = len(rows)
			rows = append(rows, row{parent: parent, meaning: meaning})
		}
		rows[at].fields = append(rows[at].fields, code(name))
	}
	return rows
}

// parentsFirst lists the paths so that those of one parent are together, in the
// order of the contract. Init containers are shown with the containers.
func parentsFirst(table *contract) (paths []string) {
	var parents []string
	below := map[string][]string{}
	for _, path := range table.order {
		if _, known := table.rules[path]; !known || strings.HasPrefix(path, "spec.initContainers[]") {
			continue
		}
		path = strings.Replace(path, "spec.containers[]", containersPath, 1)
		parent, _ := cutLast(path)
		if below[parent] == nil {
			parents = append(parents, parent)
		}
		below[parent] = append(below[parent], path)
		table.rules[path] = table.rules[strings.Replace(path, containersPath, "spec.containers[]", 1)]
	}
	for _, parent := range parents {
		slices.SortStableFunc(below[parent], func(a, b string) int { return int(table.rules[a].meaning - table.rules[b].meaning) })
		paths = append(paths, below[parent]...)
	}
	return paths
}

const containersPath = "spec.{containers,initContainers}[]"

func cutLast(path string) (parent, name string) {
	at := strings.LastIndex(path, ".")
	return path[:max(at, 0)], path[at+1:]
}

func (m Meaning) String() string {
	return [...]string{"honoured", "without a meaning, reported", "ignored", "refused"}[m]
}
