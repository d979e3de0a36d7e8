package tags

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// errTooLong ends a template whose output is longer than any tag's value.
var errTooLong = errors.New("the value is too long")

// scope has the state of the evaluation of a template.
type scope struct {
	fields map[string]string
	dot    any             // nil means the fields
	named  []variable      // $x, the innermost last
	out    strings.Builder // at most 4*maxValue bytes
}

type variable struct {
	name  string
	value any
}

// execute evaluates the template. compile has rejected the nodes that it does not support.
func (v value) execute(fields map[string]string) (string, error) {
	s := &scope{fields: fields}
	if err := s.list(v.root); err != nil {
		return "", fmt.Errorf("%w: the template cannot be evaluated: %w", backend.ErrInvalid, err)
	}
	return s.out.String(), nil
}

func (s *scope) write(text string) error {
	if s.out.Len()+len(text) > 4*maxValue {
		return errTooLong
	}
	s.out.WriteString(text)
	return nil
}

func (s *scope) list(l *parse.ListNode) error {
	if l == nil {
		return nil
	}
	outer := len(s.named)
	defer func() { s.named = s.named[:outer] }()
	for _, node := range l.Nodes {
		if err := s.statement(node); err != nil {
			return err
		}
	}
	return nil
}

func (s *scope) statement(node parse.Node) error {
	switch n := node.(type) {
	case *parse.TextNode:
		return s.write(string(n.Text))
	case *parse.ActionNode:
		v, err := s.pipe(n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		return s.write(fmt.Sprint(v))
	case *parse.IfNode:
		return s.branch(n.BranchNode, false)
	case *parse.WithNode:
		return s.branch(n.BranchNode, true)
	}
	return nil
}

// branch evaluates if, or with, whose condition becomes the dot.
func (s *scope) branch(b parse.BranchNode, with bool) error {
	outer, dot := len(s.named), s.dot
	defer func() { s.named, s.dot = s.named[:outer], dot }()
	condition, err := s.pipe(b.Pipe)
	if err != nil {
		return err
	}
	if !truth(condition) {
		return s.list(b.ElseList)
	}
	if with {
		s.dot = condition
	}
	return s.list(b.List)
}

// pipe runs commands. The value of each is the last argument of the next one.
func (s *scope) pipe(p *parse.PipeNode) (v any, err error) {
	var last []any
	for _, command := range p.Cmds {
		if v, err = s.command(command.Args, last); err != nil {
			return nil, err
		}
		last = []any{v}
	}
	for _, declared := range p.Decl {
		s.set(declared.Ident[0], v, p.IsAssign)
	}
	return v, nil
}

func (s *scope) set(name string, v any, assign bool) {
	if assign {
		for i := len(s.named) - 1; i >= 0; i-- {
			if s.named[i].name == name {
				s.named[i].value = v
				return
			}
		}
	}
	s.named = append(s.named, variable{name, v})
}

func (s *scope) command(words []parse.Node, last []any) (any, error) {
	name, isCall := words[0].(*parse.IdentifierNode)
	if !isCall {
		if len(words) > 1 || len(last) > 0 {
			return nil, fmt.Errorf("%s is not a function", words[0])
		}
		return s.operand(words[0])
	}
	if name.Ident == "and" || name.Ident == "or" {
		return s.decide(name.Ident == "or", words[1:], last)
	}
	var arguments []any
	for _, word := range words[1:] {
		v, err := s.operand(word)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, v)
	}
	arguments = append(arguments, last...)
	f := functions()[name.Ident]
	if len(arguments) < f.least || (f.most > 0 && len(arguments) > f.most) {
		return nil, fmt.Errorf("%s has %d arguments", name.Ident, len(arguments))
	}
	v, err := f.call(arguments)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name.Ident, err)
	}
	return v, nil
}

// decide evaluates "and" and "or": it returns the first value whose truth is stop, or the
// last value.
func (s *scope) decide(stop bool, words []parse.Node, last []any) (v any, err error) {
	if len(words)+len(last) == 0 {
		return nil, errors.New("and, or: no arguments")
	}
	for _, word := range words {
		if v, err = s.operand(word); err != nil || truth(v) == stop {
			return v, err
		}
	}
	if len(last) > 0 {
		v = last[0]
	}
	return v, nil
}

func (s *scope) operand(node parse.Node) (any, error) {
	switch n := node.(type) {
	case *parse.StringNode:
		return n.Text, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.NumberNode:
		return numeral(n)
	case *parse.PipeNode:
		return s.pipe(n)
	case *parse.IdentifierNode:
		return s.command([]parse.Node{n}, nil)
	case *parse.DotNode:
		if s.dot != nil {
			return s.dot, nil
		}
	case *parse.FieldNode:
		if s.dot == nil {
			return s.fieldOf(n.Ident)
		}
		return nil, fmt.Errorf("%v has no %s", s.dot, n)
	case *parse.VariableNode:
		return s.variable(n)
	}
	return nil, fmt.Errorf("%s is not a value", node)
}

func (s *scope) variable(n *parse.VariableNode) (any, error) {
	if n.Ident[0] == "$" && len(n.Ident) > 1 {
		return s.fieldOf(n.Ident[1:])
	}
	at := slices.IndexFunc(s.named, func(v variable) bool { return v.name == n.Ident[0] })
	if at < 0 || len(n.Ident) > 1 {
		return nil, fmt.Errorf("%s is not a value", n)
	}
	for i := at; i < len(s.named); i++ { // an inner one hides an outer one
		if s.named[i].name == n.Ident[0] {
			at = i
		}
	}
	return s.named[at].value, nil
}

func (s *scope) fieldOf(path []string) (any, error) {
	v, ok := s.fields[path[0]]
	if !ok || len(path) > 1 {
		return nil, fmt.Errorf("templates have no .%s", strings.Join(path, "."))
	}
	return v, nil
}

func numeral(n *parse.NumberNode) (any, error) {
	switch {
	case n.IsInt:
		return int(n.Int64), nil
	case n.IsFloat:
		return n.Float64, nil
	}
	return nil, fmt.Errorf("%s is not a supported number", n)
}
