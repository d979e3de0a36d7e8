// Package gotemplate runs Go templates over decoded JSON, with the results of
// text/template.
//
// It exists because of the size of the binary: text/template finds methods by their
// names, and the linker then keeps every method of every type, which is 20 MB. Decoded
// JSON has no methods, so nothing is lost. The syntax is that of text/template, whose
// parser this package uses. It is stricter in one: a field never takes an argument;
// text/template ignores one if the object lacks the field's parent. It allows one thing
// more: numbers of the data as indices of slice.
package gotemplate

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
)

// Template is a parsed template.
type Template struct {
	name  string
	trees map[string]*parse.Tree
}

// Parse reads a template. The name is for its errors.
func Parse(name, text string) (*Template, error) {
	known := map[string]any{}
	for function := range functions() {
		known[function] = true
	}
	for _, own := range []string{"and", "or", "call"} {
		known[own] = true
	}
	trees, err := parse.Parse(name, text, "", "", known)
	if err != nil {
		return nil, err
	}
	return &Template{name: name, trees: trees}, nil
}

// maximumDepth bounds templates that run themselves.
const maximumDepth = 10_000

// none is the value of a field that an object lacks. A field whose value is null is nil.
type none struct{}

// The ends of a round of a loop that are not errors.
var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

// Execute writes what the template makes of data: nil, bool, string, int64, float64,
// map[string]any and []any, as decoded JSON has them. Nothing is written if it fails.
func (t *Template) Execute(out io.Writer, data any) error {
	tree := t.trees[t.name]
	if tree == nil || tree.Root == nil {
		return fmt.Errorf("template: %s: it is empty, or has nothing but definitions", t.name)
	}
	var text strings.Builder
	r := run{template: t, tree: tree, functions: functions(), out: &text, variables: []variable{{"$", data}}}
	if err := r.walk(data, tree.Root); err != nil {
		return err
	}
	_, err := io.WriteString(out, text.String())
	return err
}

type variable struct {
	name  string
	value any
}

// run is one execution, in one of the template's trees.
type run struct {
	template  *Template
	tree      *parse.Tree
	functions map[string]function
	out       *strings.Builder
	variables []variable
	depth     int
}

// failf makes an error that names the place in the template.
func (r *run) failf(node parse.Node, format string, arguments ...any) error {
	place, context := r.tree.ErrorContext(node)
	return fmt.Errorf("template: %s: executing %q at <%s>: %w", place, r.tree.Name, context,
		fmt.Errorf(format, arguments...))
}

func (r *run) walk(dot any, node parse.Node) error {
	switch node := node.(type) {
	case *parse.ListNode:
		for _, one := range node.Nodes {
			if err := r.walk(dot, one); err != nil {
				return err
			}
		}
		return nil
	case *parse.TextNode:
		r.out.Write(node.Text)
		return nil
	case *parse.ActionNode:
		value, err := r.pipeline(dot, node.Pipe)
		if err == nil && len(node.Pipe.Decl) == 0 {
			_, _ = fmt.Fprint(r.out, shown(value)) // a builder does not fail
		}
		return err
	case *parse.IfNode:
		return r.branch(dot, &node.BranchNode, false)
	case *parse.WithNode:
		return r.branch(dot, &node.BranchNode, true)
	case *parse.RangeNode:
		return r.loop(dot, node)
	case *parse.TemplateNode:
		return r.call(dot, node)
	case *parse.BreakNode:
		return errBreak
	case *parse.ContinueNode:
		return errContinue
	case *parse.CommentNode:
		return nil
	}
	return r.failf(node, "%s is not supported", node)
}

// branch is an if or a with, which also sets the dot.
func (r *run) branch(dot any, node *parse.BranchNode, with bool) error {
	defer r.forget(len(r.variables))
	value, err := r.pipeline(dot, node.Pipe)
	switch {
	case err != nil:
		return err
	case truth(value) && with:
		return r.walk(value, node.List)
	case truth(value):
		return r.walk(dot, node.List)
	case node.ElseList != nil:
		return r.walk(dot, node.ElseList)
	}
	return nil
}

// forget ends the scope of the variables from an index on.
func (r *run) forget(from int) { r.variables = r.variables[:from] }

func (r *run) loop(dot any, node *parse.RangeNode) error {
	defer r.forget(len(r.variables))
	value, err := r.pipeline(dot, node.Pipe)
	if err != nil {
		return err
	}
	rounds := 0
	round := func(index, element any) error {
		rounds++
		inner := len(r.variables)
		defer r.forget(inner)
		if err := r.declareRound(node, index, element); err != nil {
			return err
		}
		err := r.walk(element, node.List)
		if errors.Is(err, errContinue) {
			return nil
		}
		return err
	}
	if err := r.rounds(node, value, round); err != nil {
		if errors.Is(err, errBreak) {
			return nil
		}
		return err
	}
	if rounds == 0 && node.ElseList != nil {
		return r.walk(dot, node.ElseList)
	}
	return nil
}

// rounds calls round for each element: those of a map in the order of its keys.
func (r *run) rounds(node *parse.RangeNode, value any, round func(index, element any) error) error {
	switch value := value.(type) {
	case none:
		return nil
	case []any:
		for i, element := range value {
			if err := round(i, element); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if err := round(key, value[key]); err != nil {
				return err
			}
		}
		return nil
	}
	count, ok := integer(value)
	if !ok || len(node.Pipe.Decl) > 1 {
		return r.failf(node, "range cannot iterate over %v", value)
	}
	for i := range count {
		if err := round(none{}, i); err != nil {
			return err
		}
	}
	return nil
}

// declareRound gives the variables of a loop their values: one is the element, two are
// index and element.
func (r *run) declareRound(node *parse.RangeNode, index, element any) error {
	declared := node.Pipe.Decl
	values := []any{index, element}[2-len(declared):]
	for i, one := range declared {
		if node.Pipe.IsAssign {
			if err := r.assign(one, values[i]); err != nil {
				return err
			}
			continue
		}
		r.variables[len(r.variables)-len(declared)+i].value = values[i]
	}
	return nil
}

func (r *run) assign(to *parse.VariableNode, value any) error {
	for i := len(r.variables) - 1; i >= 0; i-- {
		if r.variables[i].name == to.Ident[0] {
			r.variables[i].value = value
			return nil
		}
	}
	return r.failf(to, "undefined variable: %s", to.Ident[0])
}

// call runs another template, which sees none of the variables.
func (r *run) call(dot any, node *parse.TemplateNode) error {
	tree := r.template.trees[node.Name]
	if tree == nil || tree.Root == nil {
		return r.failf(node, "template %q not defined", node.Name)
	}
	if r.depth == maximumDepth {
		return r.failf(node, "templates run each other more than %d times", maximumDepth)
	}
	var value any = none{}
	if node.Pipe != nil {
		var err error
		if value, err = r.pipeline(dot, node.Pipe); err != nil {
			return err
		}
	}
	inner := run{template: r.template, tree: tree, functions: r.functions, out: r.out, depth: r.depth + 1,
		variables: []variable{{"$", value}}}
	return inner.walk(value, tree.Root)
}
