package tags

import (
	"fmt"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// maxTemplate bounds the text of a template, in bytes.
const maxTemplate = 4096

// value is the template of a tag's value. The parser is that of text/template. This
// package evaluates the result, because text/template finds methods by name, for which
// the linker would keep every method of every type in the binary.
type value struct {
	root *parse.ListNode
	// variables that the template names.
	variables []string
}

// compile parses a template. Templates have conditions and functions, but neither loops
// nor other templates, so that every evaluation is short.
func compile(text string) (value, error) {
	if len(text) > maxTemplate {
		return value{}, fmt.Errorf("%w: a template of %d bytes is too long; %d are allowed",
			backend.ErrInvalid, len(text), maxTemplate)
	}
	known := map[string]any{}
	for _, name := range slices.Concat(allowed(), foreign()) {
		known[name] = true
	}
	trees, err := parse.Parse("value", text, "", "", known)
	if err != nil {
		return value{}, fmt.Errorf("%w: the template %q cannot be parsed: %s",
			backend.ErrInvalid, text, withoutPosition(err))
	}
	w, read := walker{}, value{}
	if tree := trees["value"]; tree != nil {
		read.root = tree.Root
		w.list(tree.Root)
	}
	if len(trees) > 1 {
		w.refuse("define")
	}
	if len(w.refused) > 0 {
		return value{}, fmt.Errorf("%w: the template %q uses %s, which tags do not have; functions are %s",
			backend.ErrInvalid, text, strings.Join(w.refused, ", "), strings.Join(allowed(), ", "))
	}
	read.variables = w.variables
	return read, nil
}

// withoutPosition is the text of a parser's error without the name of the template.
func withoutPosition(err error) string {
	_, text, _ := strings.Cut(err.Error(), "value:")
	return "line " + text
}

// walker visits every node of a template.
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
