package page

import (
	"strings"

	g "maragu.dev/gomponents"
	. "maragu.dev/gomponents/html" //nolint:staticcheck // its functions are the elements of HTML

	"github.com/holdfast-csi/holdfast/internal/status"
)

// Prefix is the path below which the page is served.
const Prefix = "/status/"

// tabs are the pages of the navigation.
func tabs() [][2]string {
	return [][2]string{
		{"", "Overview"}, {"volumes", "Volumes"}, {"pods", "Pods"}, {"snapshots", "Snapshots"}, {"drivers", "Drivers"},
	}
}

// tabOf is the tab that a path belongs to.
func tabOf(path string) string {
	kind, _, _ := strings.Cut(path, "/")
	switch kind {
	case status.Claim, status.Volume:
		return "volumes"
	case status.Pod:
		return "pods"
	case status.Snapshot:
		return "snapshots"
	case status.Plugin:
		return "drivers"
	}
	return kind
}

// document is a whole page.
func (h *Handler) document(path, name string, s screen) g.Node {
	digest := drawnOf(s.fragments()).digest()
	return Doctype(HTML(Lang("en"),
		Head(
			Meta(Charset("utf-8")), Meta(Name("viewport"), Content("width=device-width, initial-scale=1")),
			Meta(Name("color-scheme"), Content("light dark")), titleNode(s.title),
			Link(Rel("stylesheet"), Href(Prefix+"assets/status.css?"+h.assets["status.css"].version)),
			Link(Rel("icon"), Href(Prefix+"assets/icon.svg?"+h.assets["icon.svg"].version)),
			Script(Src(Prefix+"assets/status.js?"+h.assets["status.js"].version), Defer()),
		),
		Body(
			A(Class("skip"), Href("#main"), g.Text("Skip to the content")),
			Header(
				P(Class("name"), Strong(g.Text("Holdfast")), g.Text(" "), Span(g.Text(name))),
				Nav(Aria("label", "Pages"), Ul(g.Map(tabs(), func(tab [2]string) g.Node {
					return Li(A(Href(Prefix+tab[0]), g.If(tabOf(path) == tab[0], Aria("current", "page")), g.Text(tab[1])))
				}))),
				P(ID("live"), Role("status"), Class("live"), NoScript(g.Text("Reload the page to see changes."))),
			),
			Main(ID("main"), TabIndex("-1"), Data("live", Prefix+"live?at="+path), Data("digest", digest), s.nodes()),
			Footer(P(g.Text("This page only reads. 'holdfast why' and 'holdfast describe' have the same answers in a terminal."))),
		),
	))
}

func titleNode(title string) g.Node { return TitleEl(ID("title"), g.Text(title+" · Holdfast")) }

// href is the path of an object's page.
func href(ref status.Ref) string {
	words := []string{ref.Kind}
	if ref.Namespace != "" {
		words = append(words, ref.Namespace)
	}
	return Prefix + strings.Join(append(words, ref.Name), "/")
}

func link(ref status.Ref) g.Node { return A(Href(href(ref)), g.Text(nameOf(ref))) }

// nameOf leaves out the namespace that most objects of a host have.
func nameOf(ref status.Ref) string {
	if ref.Namespace == "" || ref.Namespace == "default" {
		return ref.Name
	}
	return ref.Namespace + "/" + ref.Name
}

// badge is a level as a word with a colour.
func badge(level status.Level, text string) g.Node {
	return Span(Class("badge "+string(level)), g.Text(text))
}
