package gotemplate

import (
	"strings"
	"text/template/parse"
)

// pipeline is the value of a pipeline, and declares its variables. It is never nil: a
// null counts as missing.
func (r *run) pipeline(dot any, pipe *parse.PipeNode) (any, error) {
	var value any
	var err error
	for i, command := range pipe.Cmds {
		if i == 0 {
			value, err = r.command(dot, command, nil)
		} else {
			value, err = r.command(dot, command, []any{value})
		}
		if err != nil {
			return nil, err
		}
		if value == nil {
			value = none{}
		}
	}
	for _, declared := range pipe.Decl {
		if !pipe.IsAssign {
			r.variables = append(r.variables, variable{declared.Ident[0], value})
		} else if err := r.assign(declared, value); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// command is the value of one command. last is the value of the one before it in the
// pipeline, if there is one: a function's last argument.
func (r *run) command(dot any, command *parse.CommandNode, last []any) (any, error) {
	first := command.Args[0]
	if function, ok := first.(*parse.IdentifierNode); ok {
		return r.function(dot, function, command.Args[1:], last)
	}
	if len(command.Args) > 1 || len(last) > 0 {
		return nil, r.failf(first, "%s is not a function and takes no arguments", first)
	}
	if _, ok := first.(*parse.NilNode); ok {
		return nil, r.failf(first, "nil is not a command")
	}
	return r.operand(dot, first)
}

// operand is the value of an argument, or of a command without arguments.
func (r *run) operand(dot any, node parse.Node) (any, error) {
	switch node := node.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.NilNode:
		return nil, nil
	case *parse.BoolNode:
		return node.True, nil
	case *parse.StringNode:
		return node.Text, nil
	case *parse.NumberNode:
		return r.number(node)
	case *parse.FieldNode:
		return r.fields(node, dot, node.Ident)
	case *parse.VariableNode:
		return r.variable(node)
	case *parse.PipeNode:
		return r.pipeline(dot, node)
	case *parse.ChainNode:
		value, err := r.operand(dot, node.Node)
		if err != nil {
			return nil, err
		}
		return r.fields(node, value, node.Field)
	case *parse.IdentifierNode:
		return r.function(dot, node, nil, nil)
	}
	return nil, r.failf(node, "%s is not a value", node)
}

// number is a constant: its syntax says whether it is a whole number.
func (r *run) number(node *parse.NumberNode) (any, error) {
	isHexadecimal := len(node.Text) > 2 && strings.EqualFold(node.Text[:2], "0x") && !strings.ContainsAny(node.Text, "pP")
	switch {
	case node.IsComplex:
		return nil, r.failf(node, "complex numbers are not supported")
	case node.IsFloat && !isHexadecimal && node.Text[0] != '\'' && strings.ContainsAny(node.Text, ".eEpP"):
		return node.Float64, nil
	case node.IsInt:
		return int(node.Int64), nil
	}
	return nil, r.failf(node, "%s is too large", node.Text)
}

func (r *run) variable(node *parse.VariableNode) (any, error) {
	for i := len(r.variables) - 1; i >= 0; i-- {
		if r.variables[i].name == node.Ident[0] {
			return r.fields(node, r.variables[i].value, node.Ident[1:])
		}
	}
	return nil, r.failf(node, "undefined variable: %s", node.Ident[0])
}

// fields follows the names of fields. A field of a missing value is missing, too.
func (r *run) fields(node parse.Node, value any, names []string) (any, error) {
	for _, name := range names {
		switch object := value.(type) {
		case none:
		case nil:
			return nil, r.failf(node, "the value is null and has no field %s", name)
		case map[string]any:
			field, ok := object[name]
			if value = field; !ok {
				value = none{}
			}
		default:
			return nil, r.failf(node, "cannot evaluate field %s of %s", name, kindOf(value))
		}
	}
	return value, nil
}

// function calls a function. and and or do not evaluate more than they need.
func (r *run) function(dot any, node *parse.IdentifierNode, arguments []parse.Node, last []any) (any, error) {
	name, count := node.Ident, len(arguments)+len(last)
	switch name {
	case "and", "or":
		if count == 0 {
			return nil, r.failf(node, "%s needs an argument", name)
		}
		return r.shortCircuit(dot, name == "or", arguments, last)
	case "call":
		return nil, r.failf(node, "call: the fields of an object are no functions")
	}
	function, ok := r.functions[name]
	if !ok {
		return nil, r.failf(node, "function %q is not defined", name)
	}
	if count < function.least || function.most > 0 && count > function.most {
		return nil, r.failf(node, "wrong number of arguments for %s: %d", name, count)
	}
	values := make([]any, 0, count)
	for _, argument := range arguments {
		value, err := r.operand(dot, argument)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	values = append(values, last...)
	for i, value := range values {
		if _, missing := value.(none); missing {
			values[i] = nil
		}
	}
	value, err := function.call(values)
	if err != nil {
		return nil, r.failf(node, "error calling %s: %w", name, err)
	}
	return value, nil
}

// shortCircuit returns the first argument that decides, or the last one.
func (r *run) shortCircuit(dot any, decides bool, arguments []parse.Node, last []any) (value any, err error) {
	for _, argument := range arguments {
		if value, err = r.operand(dot, argument); err != nil || truth(value) == decides {
			return value, err
		}
	}
	if len(last) > 0 {
		return last[0], nil
	}
	return value, nil
}
