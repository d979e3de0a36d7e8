package status_test

import (
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// screenshots is where the pictures of the documentation are written.
var screenshots = flag.String("status.screenshots", "", "`directory` to write pictures of six views to")

// filled is a machine with an object of each kind, one that waits and one that fails.
func filled(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	m.apply(classes, claim("data", "fast"), claim("later", "late"), claim("mistake", "wrong"))
	m.bound("data")
	m.apply(pod("web", "data"), snapshot("monday", "data"))
	t.Cleanup(func() {
		for _, one := range [][2]string{{"pods", "web"}, {"volumesnapshots", "monday"}, {"persistentvolumeclaims", "data"}} {
			m.delete(one[0], one[1])
		}
	})
	m.until("the claim has failed", func() bool {
		story, err := m.client.Journal(t.Context(), "PersistentVolumeClaim", "default/mistake")
		return err == nil && len(story.Events) > 0
	})
	return m
}

// views are the pages of every kind, with words that each of them has.
func views() map[string][]string {
	return map[string][]string{
		"":                        {"What waits", "mistake", "tpye", "needs a person", "later", "Pools", "promised to volumes", "Drivers", "local.holdfast.dev"},
		"volumes":                 {"Claims", "data", "64Mi", "web", "mistake", "Pending"},
		"pods":                    {"web", "Running", "1/1"},
		"snapshots":               {"monday", "Ready"},
		"drivers":                 {"local.holdfast.dev", second},
		"driver/" + second:        {second, "Registered"},
		"pvc/default/data":        {"Steps", "create", "stage", "publish", "done", "Bound", "ProvisioningSucceeded"},
		"pvc/default/mistake":     {"Why", "InvalidArgument", "tpye"},
		"pod/default/web":         {"Steps", "publish", "Running"},
		"snapshot/default/monday": {"Steps", "snapshot", "Ready"},
		"pvc/default/nothing":     {"does not exist"},
	}
}

// Every view is complete, loads nothing from elsewhere, and breaks no rule of its policy.
func TestViews_areComplete(t *testing.T) {
	m := filled(t)
	p := newTab(t, 1100, 900)
	for path, words := range views() {
		p.open(m.url + path)
		p.until(`document.getElementById("live").textContent === "live"`)
		for _, word := range words {
			p.until(fmt.Sprintf("document.body.innerText.includes(%q)", word))
		}
	}
	p.mu.Lock() // the browser names a page of an object that does not exist
	p.complaints = without(p.complaints, "404")
	p.mu.Unlock()
	p.isQuiet(originOf(t, m.url))
	t.Run("on a phone", func(t *testing.T) { onAPhone(t, m) })
	t.Run("without JavaScript", func(t *testing.T) { withoutScript(t, m) })
	t.Run("by keyboard", func(t *testing.T) { byKeyboard(t, m) })
	t.Run("in dark and light", func(t *testing.T) { inDarkAndLight(t, m) })
	t.Run("screenshots", func(t *testing.T) { takeScreenshots(t, m) })
}

func without(texts []string, word string) (left []string) {
	for _, text := range texts {
		if !strings.Contains(text, word) {
			left = append(left, text)
		}
	}
	return left
}

// No view is wider than a phone.
func onAPhone(t *testing.T, m *machine) {
	p := newTab(t, 390, 844)
	for path := range views() {
		p.open(m.url + path)
		if width := value[int](p, "document.scrollingElement.scrollWidth"); width > 390 {
			t.Errorf("%q is %d pixels wide", path, width)
		}
	}
}

func withoutScript(t *testing.T, m *machine) {
	p := newTab(t, 1100, 900)
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	for path, words := range views() {
		p.open(m.url + path)
		has(t, p.text(), append(words, "Reload the page to see changes.")...)
	}
}

// byKeyboard walks from the address bar to the waterfall of a claim.
func byKeyboard(t *testing.T, m *machine) {
	p := newTab(t, 1100, 900)
	p.open(m.url)
	focused := func() string { return value[string](p, "document.activeElement.textContent") }
	tabTo := func(word string) {
		for range 60 {
			p.run(chromedp.KeyEvent(kb.Tab))
			if focused() == word {
				if outline := value[string](p, "getComputedStyle(document.activeElement).outlineStyle"); outline == "none" {
					t.Errorf("the focus on %q cannot be seen", word)
				}
				return
			}
		}
		t.Fatalf("the focus does not reach %q", word)
	}
	p.run(chromedp.KeyEvent(kb.Tab))
	if got := focused(); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	tabTo("Volumes")
	p.run(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#claims"))
	tabTo("data")
	p.run(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("#waterfall"))
	if got := value[string](p, "location.pathname"); got != "/status/pvc/default/data" {
		t.Errorf("the walk ends at %s", got)
	}
}

// Texts can be read in both colour schemes: WCAG 2 asks for a contrast of 4.5.
func inDarkAndLight(t *testing.T, m *machine) {
	p := newTab(t, 1100, 900)
	grounds := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		p.prefers(scheme)
		for _, path := range []string{"", "pvc/default/mistake", "volumes"} {
			p.open(m.url + path)
			grounds[scheme] = value[string](p, "getComputedStyle(document.body).backgroundColor")
			for _, pair := range value[[][3]string](p, colours) {
				if ratio := contrast(t, pair[1], pair[2]); ratio < 4.5 {
					t.Errorf("%s, %q: %q has a contrast of %.1f (%s on %s)", scheme, path, pair[0], ratio, pair[1], pair[2])
				}
			}
		}
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("both schemes have the ground %s", grounds["light"])
	}
}

// colours lists each text with its colour and that of the first ground behind it.
const colours = `[...document.querySelectorAll("body *")].filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) && e.getClientRects().length > 0 && !(e instanceof SVGElement)).map((e) => {
  let ground = e;
  while (ground && getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
  return [e.textContent.slice(0, 40), getComputedStyle(e).color, getComputedStyle(ground ?? document.body).backgroundColor];
})`

func contrast(t *testing.T, text, ground string) float64 {
	a, b := luminance(t, text), luminance(t, ground)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

var rgb = regexp.MustCompile(`^rgb\((\d+), (\d+), (\d+)\)$`)

// luminance is the relative luminance of WCAG 2.
func luminance(t *testing.T, colour string) (sum float64) {
	t.Helper()
	found := rgb.FindStringSubmatch(colour)
	if found == nil {
		t.Fatalf("%q is not an opaque colour", colour)
	}
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		part, _ := strconv.ParseFloat(found[i+1], 64)
		if part /= 255; part <= 0.04045 {
			sum += weight * part / 12.92
			continue
		}
		sum += weight * math.Pow((part+0.055)/1.055, 2.4)
	}
	return sum
}

func takeScreenshots(t *testing.T, m *machine) {
	directory := *screenshots
	if directory == "" {
		directory = t.TempDir()
	}
	for name, path := range map[string]string{
		"overview": "", "volumes": "volumes", "claim": "pvc/default/data", "why": "pvc/default/mistake", "drivers": "drivers",
	} {
		p := newTab(t, 1000, 760)
		p.open(m.url + path)
		p.until(`document.getElementById("live").textContent === "live"`)
		p.screenshot(filepath.Join(directory, "status-"+name+".png"))
	}
	p := newTab(t, 390, 780)
	p.prefers("dark")
	p.open(m.url + "pvc/default/data")
	p.screenshot(filepath.Join(directory, "status-phone.png"))
}

// A driver stops answering: the claim that waits for it is on the open page, without a
// reload, with the step that does not end; and it leaves the page after the repair.
func TestHungVolume_appears(t *testing.T) {
	m := newMachine(t)
	m.apply(classes, claim("before", "second"))
	m.bound("before")
	p := newTab(t, 1100, 900)
	p.open(m.url)
	p.until(`document.getElementById("live").textContent === "live"`)
	value[bool](p, "window.notReloaded = true")
	pid := m.driver()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	m.apply(claim("hung", "second"))
	p.until(`document.getElementById("waiting").innerText.includes("hung") && document.getElementById("steps").innerText.includes("create")`)
	t.Logf("the hung volume is on the page %v after it was applied", time.Since(begin))
	has(t, p.text(), "has not ended yet")
	first := value[string](p, `document.querySelector("#steps td.number").textContent`)
	p.until(fmt.Sprintf(`document.querySelector("#steps td.number").textContent !== %q`, first)) // its time goes on
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.until(`document.getElementById("waiting").innerText.includes("Nothing waits")`)
	if !value[bool](p, "window.notReloaded === true") {
		t.Error("the page was loaded again")
	}
	p.isQuiet(originOf(t, m.url))
	m.delete("persistentvolumeclaims", "hung")
	m.delete("persistentvolumeclaims", "before")
}
