package tags

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// maxTemplate bounds the text of a template, in bytes.
const maxTemplate = 4096

// value is the template of one tag's value.
type value struct {
	template *template.Template
	// variables that it names.
	variables []string
}

// compile reads a template. It may choose and compute, but neither repeat nor
// call for other templates: it ends soon, whatever it says.
func compile(text string) (value, error) {
	if len(text) > maxTemplate {
		return value{}, fmt.Errorf("%w: a template of %d bytes is too long; %d are allowed", backend.ErrInvalid, len(text), maxTemplate)
	}
	t, err := template.New("value").Option("missingkey=error").Funcs(functions()).Parse(text)
	if err != nil {
		return value{}, fmt.Errorf("%w: the template %q cannot be read: %s", backend.ErrInvalid, text, said(err))
	}
	w := walker{}
	if t.Tree != nil {
		w.list(t.Root)
	}
	if len(t.Templates()) > 1 {
		w.refuse("define")
	}
	if len(w.refused) > 0 {
		return value{}, fmt.Errorf("%w: the template %q uses %s, which tags do not have; functions are %s",
			backend.ErrInvalid, text, strings.Join(w.refused, ", "), strings.Join(allowed(), ", "))
	}
	return value{template: t, variables: w.variables}, nil
}

// said is what a template's error tells, without where in our code it was met.
func said(err error) string {
	_, text, _ := strings.Cut(err.Error(), "value:")
	return "line " + text
}

// functions beside the ones of text/template, and in place of some of them:
// index and lastIndex look for a text in another, and printf is kept from
// making texts of any length.
func functions() template.FuncMap {
	return template.FuncMap{
		"field": field, "substring": substring,
		"toUpper": strings.ToUpper, "toLower": strings.ToLower,
		"contains":  func(part, text string) bool { return strings.Contains(text, part) },
		"index":     func(part, text string) int { return strings.Index(text, part) },
		"lastIndex": func(part, text string) int { return strings.LastIndex(text, part) },
		"printf":    printf,
	}
}

// allowed are the names of all functions that a template may use.
func allowed() []string {
	names := slices.Collect(maps.Keys(functions()))
	names = append(names, "and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "slice", "print", "println")
	slices.Sort(names)
	return names
}

// field is the part of a text at an index, counted from 0, between delimiters.
func field(delimiter string, index int, text string) (string, error) {
	parts := strings.Split(text, delimiter)
	if index < 0 || index >= len(parts) {
		return "", fmt.Errorf("field %d of %q, which has %d", index, text, len(parts))
	}
	return parts[index], nil
}

// substring is the text from start to before end, in bytes.
func substring(start, end int, text string) (string, error) {
	if start < 0 || end < start || end > len(text) {
		return "", fmt.Errorf("substring %d to %d of %q, which has %d bytes", start, end, text, len(text))
	}
	return text[start:end], nil
}

// longWidth finds widths and precisions of more than three digits, or given by
// an argument.
var longWidth = regexp.MustCompile(`%[^a-zA-Z%]*([0-9]{4}|\*)`)

func printf(format string, arguments ...any) (string, error) {
	if longWidth.MatchString(format) {
		return "", fmt.Errorf("printf %q has a width that is too large", format)
	}
	return fmt.Sprintf(format, arguments...), nil
}

// walker looks at everything in a template.
type walker struct {
	variables, refused []string
}

func (w *walker) refuse(what string) { w.refused = append(w.refused, what) }

func (w *walker) list(l *parse.ListNode) {
	if l == nil {
		return
	}
	for _, node := range l.Nodes {
		w.node(node)
	}
}

func (w *walker) branch(b parse.BranchNode) {
	w.pipe(b.Pipe)
	w.list(b.List)
	w.list(b.ElseList)
}

func (w *walker) pipe(p *parse.PipeNode) {
	if p == nil {
		return
	}
	for _, command := range p.Cmds {
		for _, argument := range command.Args {
			w.node(argument)
		}
	}
}

func (w *walker) node(node parse.Node) {
	switch n := node.(type) {
	case *parse.TextNode, *parse.CommentNode, *parse.BoolNode, *parse.NumberNode, *parse.StringNode, *parse.DotNode, *parse.NilNode:
	case *parse.ActionNode:
		w.pipe(n.Pipe)
	case *parse.PipeNode:
		w.pipe(n)
	case *parse.IfNode:
		w.branch(n.BranchNode)
	case *parse.WithNode:
		w.branch(n.BranchNode)
	case *parse.ChainNode:
		w.node(n.Node)
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			w.variables = append(w.variables, n.Ident[1:]...)
		}
	case *parse.FieldNode:
		w.variables = append(w.variables, n.Ident...)
	case *parse.IdentifierNode:
		if !slices.Contains(allowed(), n.Ident) {
			w.refuse(n.Ident)
		}
	default: // range, template, break, continue
		name, _, _ := strings.Cut(strings.Trim(node.String(), "{} "), " ")
		w.refuse(name)
	}
}

// errTooLong ends a template whose output is longer than any tag's value.
var errTooLong = errors.New("the value is too long")

// bounded keeps as many bytes as the longest value has.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > 4*maxValue {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}

func (v value) execute(variables map[string]string) (string, error) {
	var out bounded
	if err := v.template.Execute(&out, variables); err != nil {
		return "", fmt.Errorf("%w: the template cannot be filled in: %s", backend.ErrInvalid, said(err))
	}
	return out.String(), nil
}
