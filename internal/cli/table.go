package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	human "k8s.io/apimachinery/pkg/util/duration"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// column is one column of a kind's table.
type column struct {
	header string
	wide   bool // with -o wide only
	cell   func(object store.Object, now time.Time) string
}

// isStatus reports whether the column says how an object is.
func (c column) isStatus() bool { return c.header == "STATUS" || c.header == "READYTOUSE" }

// tableKind is a kind with its short names and its table, which is kubectl's.
type tableKind struct {
	kind    store.Kind
	short   []string
	columns []column
}

// tableKindNamed finds a kind by its resource name, its kind or a short name,
// each also with its group.
func tableKindNamed(name string) (tableKind, bool) {
	name = strings.ToLower(name)
	for _, kind := range tableKinds() {
		resource, single := kind.kind.Resource, strings.ToLower(kind.kind.Kind)
		names := append([]string{resource, single, resource + "." + kind.kind.Group,
			single + "." + kind.kind.Group}, kind.short...)
		for _, known := range names {
			if name == known {
				return kind, true
			}
		}
	}
	return tableKind{}, false
}

// tableStyle says which columns there are next to those of the kind.
type tableStyle struct {
	wide       bool
	namespaces bool
	labels     bool
	prefix     bool // the kind before the name, when several kinds are shown
	noHeaders  bool
	// progress, if set, adds a column with how far the work for an object is.
	progress func(store.Object) string
}

// table writes rows, each column as wide as its widest cell so far.
type table struct {
	out    io.Writer
	kind   tableKind
	style  tableStyle
	widths []int
	begun  bool
}

func newTable(out io.Writer, kind tableKind, style tableStyle) *table {
	return &table{out: out, kind: kind, style: style}
}

// write writes some objects, with the headers before the first.
func (t *table) write(objects []store.Object, now time.Time) error {
	var rows [][]string
	var paints []paint
	colours := painterOf(t.out)
	if !t.begun && !t.style.noHeaders {
		rows, paints = append(rows, t.headers()), append(paints, colours.headings)
	}
	t.begun = true
	for _, object := range objects {
		rows, paints = append(rows, t.row(object, now)), append(paints, colours.cells(t.columns(), object))
	}
	t.widths = widen(t.widths, rows)
	var text strings.Builder
	for i, row := range rows {
		writeRow(&text, row, t.widths, paints[i])
	}
	_, err := io.WriteString(t.out, text.String())
	return err
}

func (t *table) columns() []column {
	var columns []column
	if t.style.namespaces && t.kind.kind.Namespaced {
		columns = append(columns, column{header: "NAMESPACE",
			cell: func(o store.Object, _ time.Time) string { return o.GetNamespace() }})
	}
	for _, c := range t.kind.columns {
		if !c.wide || t.style.wide {
			columns = append(columns, c)
		}
	}
	if t.style.progress != nil {
		columns = append(columns, column{header: "PROGRESS",
			cell: func(o store.Object, _ time.Time) string { return t.style.progress(o) }})
	}
	if t.style.labels {
		columns = append(columns, column{header: "LABELS", cell: func(o store.Object, _ time.Time) string {
			return orNone(labels.FormatLabels(o.GetLabels()))
		}})
	}
	return columns
}

func (t *table) headers() []string {
	var headers []string
	for _, c := range t.columns() {
		headers = append(headers, c.header)
	}
	return headers
}

func (t *table) row(object store.Object, now time.Time) []string {
	var cells []string
	for _, c := range t.columns() {
		cell := c.cell(object, now)
		if c.header == "NAME" && t.style.prefix {
			cell = singular(t.kind.kind) + "/" + cell
		}
		cells = append(cells, printable(cell))
	}
	return cells
}

// printable removes line breaks and control characters, which could reach the terminal
// from a driver.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r): // U+009B begins a sequence as ESC [ does
			return '�'
		}
		return r
	}, text)
}

// gap is between two columns.
const gap = 3

func widen(widths []int, rows [][]string) []int {
	for _, row := range rows {
		for i, cell := range row {
			if i >= len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// paint returns a cell with its colour, or as it is.
type paint func(column int, cell string) string

// unpainted is the paint of a table without colours.
func unpainted(_ int, cell string) string { return cell }

// writeRow pads each cell by its bare width, and paints it.
func writeRow(out *strings.Builder, row []string, widths []int, painted paint) {
	spaces := 0 // before the next cell; none are written at the end of a line
	for i, cell := range row {
		cell = strings.TrimRight(cell, " ")
		if cell != "" {
			out.WriteString(strings.Repeat(" ", spaces) + painted(i, cell))
			spaces = 0
		}
		spaces += widths[i] - utf8.RuneCountInString(cell) + gap
	}
	out.WriteString("\n")
}

// aligned writes rows as they are.
func aligned(out io.Writer, indent string, rows [][]string) error {
	return alignedPainted(out, indent, rows, func(int) paint { return unpainted })
}

// alignedPainted writes rows, each with its paint.
func alignedPainted(out io.Writer, indent string, rows [][]string, painted func(row int) paint) error {
	widths := widen(nil, rows)
	var text strings.Builder
	for i, row := range rows {
		text.WriteString(indent)
		writeRow(&text, row, widths, painted(i))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// noneText is the cell of a value that does not exist.
const noneText = "<none>"

func orNone(text string) string {
	if text == "" {
		return noneText
	}
	return text
}

// age is how long ago something was, as kubectl says it.
func age(at metav1.Time, now time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return human.HumanDuration(now.Sub(at.Time))
}

func nameCell(o store.Object, _ time.Time) string { return o.GetName() }

func ageCell(o store.Object, now time.Time) string { return age(o.GetCreationTimestamp(), now) }

// of makes a cell from a function over the kind's own type.
func of[T store.Object](read func(T) string) func(store.Object, time.Time) string {
	return func(o store.Object, _ time.Time) string {
		object, ok := o.(T)
		if !ok {
			return fmt.Sprintf("<%T>", o)
		}
		return read(object)
	}
}

// deletedOr returns Terminating for an object that is being deleted.
func deletedOr(object metav1.Object, status string) string {
	if object.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return status
}

// asList wraps objects of several kinds in a List.
func asList(objects []store.Object) any {
	return struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []store.Object `json:"items"`
	}{metav1.TypeMeta{Kind: "List", APIVersion: "v1"}, metav1.ListMeta{}, objects}
}
