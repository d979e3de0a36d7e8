package main

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// The colors of Okabe and Ito, which color-blind readers can distinguish.
var (
	ours   = color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}
	theirs = color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}
	third  = color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}
)

const barWidth = 0.4 * vg.Centimeter

type bar struct {
	label string
	value float64
}

// ratios are the rows of a table that have a ratio above 0, rates inverted, so
// that less is better in all of them.
func ratios(t table) []bar {
	var bars []bar
	for _, row := range t.rows {
		value, ok := number(row[t.column("Ratio")])
		if !ok || value <= 0 {
			continue
		}
		if isRate(row[t.column("Holdfast")]) {
			value = 1 / value
		}
		bars = append(bars, bar{label(row[0]), value})
	}
	return bars
}

// label shortens a cell to what fits next to its bar.
func label(cell string) string {
	const longest = 58
	text := strings.NewReplacer("*", "", "`", "").Replace(cell)
	if len(text) > longest {
		text = text[:strings.LastIndexByte(text[:longest], ' ')] + " …"
	}
	return text
}

// ratioPlot draws bars that begin at 1, on a logarithmic scale.
func ratioPlot(title string, bars []bar) *plot.Plot {
	p := newPlot(title, "cost relative to the named alternative; below 1 Holdfast is better (rates are inverted)")
	better, worse := make(plotter.Values, len(bars)), make(plotter.Values, len(bars))
	names := make([]string, len(bars))
	for i, b := range slices.Backward(bars) { // the first row at the top
		at := len(bars) - 1 - i
		names[at] = fmt.Sprintf("%s  %.2f", b.label, b.value)
		if height := math.Log2(b.value); height <= 0 {
			better[at] = height
		} else {
			worse[at] = height
		}
	}
	p.Add(mustBars(better, ours, 0), mustBars(worse, theirs, 0))
	p.NominalY(names...)
	p.X.Tick.Marker = powersOfTwo{}
	return p
}

// pairPlot draws a column of two tables, row by row next to each other.
func pairPlot(title, column string, first, second table) (*plot.Plot, int, error) {
	p := newPlot(title, "")
	var values [2]plotter.Values
	var names []string
	for i := len(first.rows) - 1; i >= 0; i-- {
		row := first.rows[i]
		a, okA := number(row[first.column(column)])
		at := slices.IndexFunc(second.rows, func(r []string) bool { return r[0] == row[0] })
		if at < 0 {
			return nil, 0, fmt.Errorf("%q lacks the row %q of %q", second.title, row[0], first.title)
		}
		b, okB := number(second.rows[at][second.column(column)])
		if !okA || !okB {
			continue
		}
		values[0], values[1], names = append(values[0], a), append(values[1], b), append(names, row[0])
	}
	mine, other := mustBars(values[0], ours, barWidth/2), mustBars(values[1], theirs, -barWidth/2)
	p.Add(mine, other)
	p.Legend.Add(first.title, mine)
	p.Legend.Add(second.title, other)
	p.Legend.Top = true
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, 1.3*slices.Max(append(values[0], values[1]...)) // room for the legend
	return p, len(names), nil
}

// multiple is how much another column of a table is, relative to a base column.
type multiple struct {
	heading string
	bars    []bar // for the same rows as those of each other
}

// multiples compares the columns behind the last one of Holdfast with that one, for the
// rows that all of them have.
func multiples(t table) (base string, all []multiple) {
	at := -1
	for i, heading := range t.header {
		if strings.HasPrefix(heading, "Holdfast") {
			at = i
		}
	}
	if at < 0 {
		return "", nil
	}
	for i := at + 1; i < len(t.header) && t.header[i] != "Aim"; i++ {
		all = append(all, multiple{heading: t.header[i]})
	}
	for _, row := range t.rows {
		ours, ok := number(row[at])
		values := make([]float64, len(all))
		for i := range all {
			value, also := number(row[at+1+i])
			values[i] = value / ours
			ok = ok && also && ours > 0 && value > 0
		}
		if !ok {
			continue
		}
		for i := range all {
			all[i].bars = append(all[i].bars, bar{label(row[0]), values[i]})
		}
	}
	return t.header[at], all
}

// multiplePlot draws bars that begin at 1, on a logarithmic scale.
func multiplePlot(title, base string, all []multiple) *plot.Plot {
	p := newPlot(title, "relative to "+base+"; above 1 Holdfast needs less")
	width := 2 * barWidth / vg.Length(len(all))
	colors := []color.Color{theirs, third, ours}
	names := make([]string, len(all[0].bars))
	for i, one := range all {
		values := make(plotter.Values, len(one.bars))
		for row, b := range slices.Backward(one.bars) { // the first row at the top
			at := len(one.bars) - 1 - row
			values[at], names[at] = math.Log2(b.value), b.label
		}
		bars := mustBars(values, colors[i%len(colors)], (vg.Length(len(all)-1)/2-vg.Length(i))*width)
		bars.Width = width
		p.Add(bars)
		p.Legend.Add(one.heading, bars)
	}
	p.Legend.Top = true
	p.NominalY(names...)
	p.X.Tick.Marker = powersOfTwo{}
	p.X.Min, p.X.Max = math.Min(p.X.Min, -1), 1.1*math.Max(p.X.Max, 1)
	p.Y.Max += 1.5 // room for the legend
	return p
}

func newPlot(title, axis string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, axis
	p.Title.TextStyle.Font.Variant = "Sans"
	for _, style := range []*font.Font{&p.X.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		style.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.Add(grid)
	return p
}

// mustBars panics if values is empty, which the callers' tables are not.
func mustBars(values plotter.Values, fill color.Color, offset vg.Length) *plotter.BarChart {
	bars, err := plotter.NewBarChart(values, barWidth)
	if err != nil {
		panic(err)
	}
	bars.Horizontal, bars.Color, bars.Offset, bars.LineStyle.Width = true, fill, offset, 0
	return bars
}

// powersOfTwo labels an axis of logarithms to the base 2 with their numbers.
type powersOfTwo struct{}

func (powersOfTwo) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Floor(low); power <= math.Ceil(high); power++ {
		text := fmt.Sprintf("%.0f", math.Exp2(power))
		if power < 0 {
			text = fmt.Sprintf("1/%.0f", math.Exp2(-power))
		}
		ticks = append(ticks, plot.Tick{Value: power, Label: text})
	}
	return ticks
}
