package page

import (
	"context"
	"fmt"
	"strconv"
	"time"

	human "k8s.io/apimachinery/pkg/util/duration"
	g "maragu.dev/gomponents"
	. "maragu.dev/gomponents/html" //nolint:staticcheck // as in shell.go

	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/status"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// How often a screen is drawn again without a change: while something runs, its time is
// shown in seconds, otherwise ages are in minutes.
const (
	everySecond = time.Second
	everyMinute = time.Minute
)

// overview is the first screen.
func overview(ctx context.Context, view status.View) screen {
	o, now := view.Overview(ctx), time.Now()
	s := screen{title: "Overview", every: everyMinute}
	if len(o.Waiting) > 0 || len(o.Steps) > 0 {
		s.every = everySecond
	}
	if waiting := len(o.Waiting) + o.More; waiting > 0 {
		s.title = fmt.Sprintf("(%d) Overview", waiting)
	}
	s.parts = []part{
		{id: "head", node: H1(ID("head"), g.Text("Overview"))},
		problems(o.Problems), {id: "counts", node: countsNode(o.Counts)}, {id: "waiting", node: waitingNode(o, now)},
		{id: "steps", node: inFlightNode(o)}, {id: "pools", node: poolsNode(o.Pools)}, {id: "drivers", node: driversNode(o.Drivers, view, now)},
	}
	return s
}

// problems are what cannot be read; the element stays, without text if there are none.
func problems(texts []string) part {
	return part{id: "problems", node: Div(ID("problems"), g.If(len(texts) > 0, g.Group{
		Class("problems"), Role("alert"), g.Map(texts, func(text string) g.Node { return P(g.Text(text)) }),
	}))}
}

func countsNode(counts []status.Count) g.Node {
	words := map[string][3]string{
		status.Claim: {"Claim", "Claims", "volumes"}, status.Volume: {"Volume without a claim", "Volumes without a claim", "volumes"},
		status.Pod: {"Pod", "Pods", "pods"}, status.Snapshot: {"Snapshot", "Snapshots", "snapshots"},
	}
	return Ul(ID("counts"), Class("counts"), g.Map(counts, func(count status.Count) g.Node {
		text, level := "none waits", status.Good
		if count.Waiting > 0 {
			text, level = verb(count.Waiting, "waits", "wait"), status.Busy
		}
		kind := words[count.Kind][1]
		if count.Total == 1 {
			kind = words[count.Kind][0]
		}
		return Li(A(Href(Prefix+words[count.Kind][2]),
			Strong(g.Text(strconv.Itoa(count.Total))), g.Text(" "), Span(g.Text(kind)), g.Text(" "), badge(level, text)))
	}))
}

// verb is a number with the verb that fits.
func verb(count int, one, many string) string {
	if count == 1 {
		return "1 " + one
	}
	return strconv.Itoa(count) + " " + many
}

func waitingNode(o status.Overview, now time.Time) g.Node {
	if len(o.Waiting) == 0 {
		return section("waiting", "What waits", P(Class("none"), g.Text("Nothing waits.")))
	}
	return section("waiting", "What waits",
		Ul(Class("waits"), g.Map(o.Waiting, func(wait status.Wait) g.Node {
			return Li(Class(string(levelOf(wait.State))),
				P(A(Href(href(wait.Ref)), g.Text(kindWord(wait.Ref.Kind)+" "+nameOf(wait.Ref))), g.Text(" "),
					badge(levelOf(wait.State), stateWord(wait.State)), g.Text(" "), Span(Class("age"), g.Text("for "+sinceText(wait.Row, now)))),
				P(Class("reason"), g.Text(sentence(wait.Reason))),
				g.If(wait.Error != "", P(Code(g.Text(wait.Error)))),
				g.If(wait.Do != "", P(Class("do"), g.Text(wait.Do))),
			)
		})),
		g.If(o.More > 0, P(g.Text(fmt.Sprintf("And %s; the tables have all of them.", verb(o.More, "more waits", "more wait"))))),
	)
}

// sinceText is how long a row's step runs, or how old the object is.
func sinceText(row status.Row, now time.Time) string {
	if row.Running != nil {
		return status.Duration(now.Sub(row.Running.Started).Round(100 * time.Millisecond))
	}
	return ageText(row.Created, now)
}

func levelOf(state why.State) status.Level {
	switch state {
	case why.Stuck:
		return status.Bad
	case why.Fine:
		return status.Good
	}
	return status.Busy
}

func stateWord(state why.State) string {
	return map[why.State]string{
		why.Stuck: "needs a person", why.Waits: "waits", why.Fine: "fine", why.Unknown: "unknown",
	}[state]
}

func kindWord(kind string) string {
	return map[string]string{
		status.Claim: "Claim", status.Volume: "Volume", status.Pod: "Pod", status.Snapshot: "Snapshot", status.Plugin: "Driver",
	}[kind]
}

func inFlightNode(o status.Overview) g.Node {
	if len(o.Steps) == 0 {
		return section("steps", "Steps in flight", P(Class("none"), g.Text("No step runs.")))
	}
	return section("steps", "Steps in flight",
		Div(Class("scroll"), TabIndex("0"), Role("region"), Aria("label", "Steps in flight"), Table(
			THead(heads("Step", "Of", "Driver", "Runs for", "Progress")),
			TBody(g.Map(o.Steps, func(bar status.Bar) g.Node {
				return Tr(Td(g.Text(bar.Step)), Td(g.Text(bar.Volume)), Td(g.Text(bar.Driver)),
					Td(Class("number"), g.Text(tookText(bar))), Td(progressNode(bar)))
			})),
		)),
		g.If(o.MoreSteps > 0, P(g.Textf("And %d more.", o.MoreSteps))),
	)
}

// progressNode is how far a step is, if its driver says that.
func progressNode(bar status.Bar) g.Node {
	if bar.Progress == nil || !bar.Running() {
		return g.Text("")
	}
	fraction, known := bar.Progress.Fraction()
	return g.Group{g.Text(bar.Progress.String()), g.If(known, SVG(Class("fill"), Role("img"), Aria("label", fmt.Sprintf("%.0f %% done", 100*fraction)),
		rect("track", 0, 100), rect("used", 0, 100*fraction)))}
}

func poolsNode(pools []status.Pool) g.Node {
	if len(pools) == 0 {
		return Section(ID("pools"), Hidden(""))
	}
	more := max(0, len(pools)-mostPools)
	return section("pools", "Pools", Ul(Class("pools"), g.Map(pools[:len(pools)-more], poolNode)),
		g.If(more > 0, P(g.Textf("And %d more, with more room.", more))))
}

// mostPools bounds the pools that are shown: a cluster may have one for each node.
const mostPools = 50

// poolNode shows the fill of a pool as text and as a bar.
func poolNode(pool status.Pool) g.Node {
	name := P(Strong(g.Text(pool.Driver)), g.Text(" "), Span(Class("path"), g.Text(pool.Name)))
	problems := g.If(pool.Problems != "", P(badge(status.Bad, "problem"), g.Text(" "+sentence(pool.Problems))))
	if pool.Classes != "" {
		return Li(name, P(Class("detail"), g.Textf("%s available for volumes of %s", progress.Size(pool.Available), pool.Classes)))
	}
	if pool.Size == 0 {
		return Li(name, problems, P(Class("detail"), g.Text("The pool cannot be read.")))
	}
	text := fmt.Sprintf("%s of %s available, %s promised to volumes", progress.Size(pool.Available),
		progress.Size(pool.Size), progress.Size(pool.Promised))
	if pool.Full > 0 {
		text += fmt.Sprintf("; full in %s if it grows as in the last 24 hours", human.HumanDuration(pool.Full))
	}
	return Li(name, problems,
		SVG(Class("fill "+string(pool.Level())), Role("img"), Aria("label", fmt.Sprintf("%.0f %% not available", 100*pool.Used())),
			rect("track", 0, 100), rect("used", 0, 100*pool.Used())),
		P(Class("detail"), g.Text(text)), g.If(pool.Use != "", P(Class("detail"), g.Text("Used by "+pool.Use))),
	)
}

func driversNode(drivers []status.Driver, view status.View, now time.Time) g.Node {
	if len(drivers) == 0 {
		return section("drivers", "Drivers", P(Class("none"), g.Text("No driver is registered.")))
	}
	volumes := view.VolumesOf()
	return section("drivers", "Drivers", Div(Class("scroll"), TabIndex("0"), Role("region"), Aria("label", "Drivers"), Table(
		THead(heads("Driver", "State", "Version", "Volumes", "Nodes", "Restarts", "For")),
		TBody(g.Map(drivers, func(driver status.Driver) g.Node {
			level := status.Bad
			if driver.Healthy {
				level = status.Good
			}
			return Tr(
				Th(Scope("row"), link(status.Ref{Kind: status.Plugin, Name: driver.Name})), Td(badge(level, driver.State)), Td(g.Text(driver.Version)),
				Td(Class("number"), g.Text(strconv.Itoa(volumes[driver.Name]))), Td(Class("number"), g.Text(countText(driver.Nodes))),
				Td(Class("number"), g.Text(countText(driver.Restarts))), Td(g.Text(ageText(driver.Since, now))),
			)
		})),
	)))
}

func countText(count int) string {
	if count == 0 {
		return ""
	}
	return strconv.Itoa(count)
}

func section(id, headline string, content ...g.Node) g.Node {
	return Section(ID(id), Aria("labelledby", id+"-head"), H2(ID(id+"-head"), g.Text(headline)), g.Group(content))
}

func heads(words ...string) g.Node {
	return Tr(g.Map(words, func(word string) g.Node { return Th(Scope("col"), g.Text(word)) }))
}

func rect(class string, offset, width float64) g.Node {
	return g.El("rect", Class(class), g.Attr("x", percent(offset)), g.Attr("y", "0"), g.Attr("height", "100%"), g.Attr("width", percent(width)))
}

func percent(value float64) string { return strconv.FormatFloat(value, 'f', 2, 64) + "%" }
