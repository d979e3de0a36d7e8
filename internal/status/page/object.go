package page

import (
	"context"
	"fmt"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	. "maragu.dev/gomponents/html" //nolint:staticcheck // as in shell.go

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/status"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// objectScreen is the screen of one object.
func objectScreen(ctx context.Context, view status.View, ref status.Ref) screen {
	page, now := view.Page(ctx, ref), time.Now()
	s := screen{title: kindWord(ref.Kind) + " " + nameOf(ref), every: everyMinute, missing: !page.Exists}
	for _, bar := range page.Steps.Bars {
		if bar.Running() {
			s.every = everySecond
		}
	}
	level, text := page.Row.Level, page.Row.Status
	if !page.Exists {
		level, text = status.Quiet, "does not exist"
	}
	s.parts = []part{
		{id: "head", node: headNode(kindWord(ref.Kind), nameOf(ref), level, text)}, problems(view.Problems()),
		{id: "why", node: whyNode(page)}, {id: "waterfall", node: waterfallNode(page, ref.Kind == status.Pod)},
		{id: "facts", node: factsNode(page.Facts)}, {id: "events", node: eventsNode(page.Events, now)},
	}
	return s
}

func headNode(kind, name string, level status.Level, text string) g.Node {
	return Div(ID("head"), H1(Span(Class("kind"), g.Text(kind)), g.Text(" "+name)), badge(level, text))
}

func whyNode(page status.ObjectPage) g.Node {
	switch {
	case page.WhyError != "":
		return section("why", "Why", P(g.Text(sentence("the reason cannot be read: "+page.WhyError))))
	case !page.Exists:
		return section("why", "Why", P(g.Text("The object does not exist.")))
	case len(page.Report.Findings) == 0:
		return section("why", "Why", P(Class("good"), g.Text(sentence(page.Report.Fine))), notesNode(page.Report.Notes))
	}
	return section("why", "Why", P(badge(levelOf(page.Report.State), stateWord(page.Report.State))),
		Ul(Class("waits"), g.Map(page.Report.Findings, findingNode)), notesNode(page.Report.Notes))
}

func findingNode(f why.Finding) g.Node {
	var rows g.Group
	row := func(label string, value ...g.Node) {
		rows = append(rows, Dt(g.Text(label)), Dd(g.Group(value)))
	}
	if !f.Since.IsZero() {
		row("Since", moment(f.Since))
	}
	if failed := strings.TrimSpace(f.Call + " " + f.Code); failed != "" || f.Attempts > 0 {
		row("Failed", g.Text(strings.TrimSpace(failed+" "+attempts(f.Attempts))))
	}
	if f.Error != "" {
		row("Error", Code(g.Text(f.Error)))
	}
	for _, from := range f.Evidence {
		row("Seen in", g.Text(from))
	}
	return Li(P(Class("reason"), g.Text(sentence(f.What))), g.If(len(rows) > 0, Dl(rows)), g.If(f.Do != "", P(Class("do"), g.Text(f.Do))))
}

func attempts(count int) string {
	switch count {
	case 0:
		return ""
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", count)
}

func notesNode(notes []string) g.Node {
	return g.Map(notes, func(note string) g.Node { return P(Class("note"), g.Text(sentence(note))) })
}

// moment is a time with its date.
func moment(at time.Time) g.Node {
	return Time(DateTime(at.UTC().Format(time.RFC3339)), g.Text(at.Local().Format(time.DateTime)))
}

func factsNode(facts []status.Fact) g.Node {
	if len(facts) == 0 {
		return Section(ID("facts"), Hidden(""))
	}
	return section("facts", "Facts", Dl(g.Map(facts, func(fact status.Fact) g.Node {
		value := g.Text(fact.Value)
		if fact.Link != nil {
			value = link(*fact.Link)
		}
		return g.Group{Dt(g.Text(fact.Label)), Dd(value)}
	})))
}

func eventsNode(events []status.Event, now time.Time) g.Node {
	if len(events) == 0 {
		return section("events", "Events", P(Class("none"), g.Text("There are no events.")))
	}
	return section("events", "Events", Div(Class("scroll"), TabIndex("0"), Role("region"), Aria("label", "Events"), Table(
		THead(heads("Type", "Reason", "Age", "Message")),
		TBody(g.Map(events, func(event status.Event) g.Node {
			level, kind := status.Quiet, "Normal"
			if event.Warning {
				level, kind = status.Bad, "Warning"
			}
			when := ageText(event.Last, now)
			if event.Count > 1 {
				when += fmt.Sprintf(" (%d times over %s)", event.Count, ageText(event.First, now))
			}
			return Tr(Td(badge(level, kind)), Td(g.Text(event.Reason)), Td(g.Text(when)), Td(Class("message"), g.Text(event.Message)))
		})),
	)))
}

// waterfallNode is a table of steps, each with a bar. The bars are pictures of what the
// table says in words. The steps of a pod are of several volumes, which they then name.
func waterfallNode(page status.ObjectPage, named bool) g.Node {
	w := page.Steps
	source := g.Text("")
	if page.FromEvents {
		source = P(Class("note"), g.Text("A cluster has no journal: these steps are read from timestamps and events, and are exact to the second."))
	}
	if len(w.Bars) == 0 {
		return section("waterfall", "Steps", P(Class("none"), g.Text("No step is recorded.")), source)
	}
	return section("waterfall", "Steps",
		P(g.Textf("%s in %s, from ", status.Duration(w.Took), verb(len(w.Bars), "step", "steps")), moment(w.From), g.Text("."), g.If(len(w.Breaks) > 0, g.Text(" Idle time between steps is drawn hatched and shortened."))),
		source,
		Div(Class("scroll"), TabIndex("0"), Role("region"), Aria("label", "Steps"), Table(Class("waterfall"),
			THead(heads("Step", "Took", "Course", "Result", "Started")),
			TBody(g.Map(w.Bars, func(bar status.Bar) g.Node {
				return Tr(Class(string(barLevel(bar))),
					Th(Scope("row"), g.Text(bar.Step), g.If(named && bar.Volume != "", Span(Class("detail"), g.Text(" "+bar.Volume)))), Td(Class("number"), g.Text(tookText(bar))),
					Td(Class("course"), barNode(bar, w.Breaks)), Td(Class("message"), resultNode(bar)),
					Td(Class("number"), Time(DateTime(bar.Begin.UTC().Format(time.RFC3339Nano)), g.Text(bar.Begin.Local().Format("15:04:05.000")))),
				)
			})),
		)))
}

// tookText is how long a step took; one that runs is exact to a tenth of a second.
func tookText(bar status.Bar) string {
	took := bar.End.Sub(bar.Begin)
	if bar.Running() {
		took = took.Round(100 * time.Millisecond)
	}
	return status.Duration(took)
}

func barLevel(bar status.Bar) status.Level {
	switch bar.Status {
	case journal.Done:
		return status.Good
	case journal.Started:
		return status.Busy
	}
	return status.Bad
}

// barNode draws a bar at least as wide as can be seen.
func barNode(bar status.Bar, breaks []status.Break) g.Node {
	const narrowest = 0.7
	width := max(narrowest, bar.Width)
	return SVG(Class("course"), Role("img"), Aria("label", fmt.Sprintf("%s: from %.0f %% to %.0f %% of the time", bar.Step, bar.Offset, bar.Offset+bar.Width)),
		rect("track", 0, 100),
		g.Map(breaks, func(gap status.Break) g.Node {
			return g.El("g", g.El("title", g.Text("idle for "+status.Duration(gap.Idle))), rect("idle", gap.Offset, gap.Width))
		}),
		rect("bar "+string(barLevel(bar))+running(bar), min(bar.Offset, 100-width), width))
}

func running(bar status.Bar) string {
	if bar.Running() {
		return " running"
	}
	return ""
}

// resultNode says how a step ended, or how it goes.
func resultNode(bar status.Bar) g.Node {
	var words []string
	switch bar.Status {
	case journal.Started:
		words = append(words, "runs")
	case journal.Retrying:
		words = append(words, "is repeated")
	default:
		words = append(words, string(bar.Status))
	}
	if bar.Count > 1 {
		words[0] += fmt.Sprintf(" %d times", bar.Count)
	}
	if failures := bar.Failures(); failures > 0 {
		words = append(words, "failed "+attempts(failures)+" before")
	}
	if bar.Code != "" {
		words = append(words, bar.Code)
	}
	if bar.Detail != "" && bar.Step != "publish" { // there it is a path that says nothing
		words = append(words, bar.Detail)
	}
	return g.Group{g.Text(strings.Join(words, ", ")), g.If(bar.Progress != nil, Br()), progressNode(bar), g.If(bar.Error != "", g.Group{Br(), Code(g.Text(bar.Error))})}
}
