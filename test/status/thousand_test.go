package status_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/status/page"
	"github.com/holdfast-csi/holdfast/internal/status/statustest"
)

// serve serves the page of a machine with some volumes, without a host.
func serve(t *testing.T, volumes int, options page.Options) (*statustest.Machine, string) {
	t.Helper()
	m := statustest.New(t)
	var objects []store.Object
	for i := range volumes {
		objects = append(objects, statustest.Bound(fmt.Sprintf("claim-%03d", i))...)
	}
	m.Put(t, objects...)
	options.Source, options.Logger = m.Source, slog.New(slog.DiscardHandler)
	handler, err := page.New(options)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		handler.Close()
		server.Close()
	})
	return m, server.URL + page.Prefix
}

// 1,000 volumes: all of them are there, the time to the first paint is reported, a
// change is one row, and the filter finds one.
func TestThousandVolumes_areDrawn(t *testing.T) {
	m, url := serve(t, 1000, page.Options{})
	p := newTab(t, 1100, 900)
	for range 3 { // the first has to read the objects
		p.open(url + "volumes")
		p.until(`performance.getEntriesByName("first-contentful-paint").length === 1`)
		t.Logf("first contentful paint after %.0f ms, all of it after %.0f ms",
			value[float64](p, `performance.getEntriesByName("first-contentful-paint")[0].startTime`),
			value[float64](p, `performance.getEntriesByType("navigation")[0].domComplete`))
	}
	if rows := value[int](p, `document.querySelectorAll("#claims-rows tr").length`); rows != 1000 {
		t.Errorf("%d rows", rows)
	}
	p.until(`document.getElementById("live").textContent === "live"`)
	value[bool](p, `(window.kept = document.getElementById("pvc/default/claim-001")) !== null`)
	begin := time.Now()
	m.Journal.Step(statustest.Step("claim-500", "expand", journal.Started, 0))
	p.until(`document.getElementById("pvc/default/claim-500").innerText.includes("expand")`)
	t.Logf("a change of one of 1,000 is drawn after %v", time.Since(begin))
	if !value[bool](p, `window.kept === document.getElementById("pvc/default/claim-001")`) {
		t.Error("a row that did not change was replaced")
	}
	p.run(chromedp.KeyEvent("/"))
	if got := value[string](p, "document.activeElement.type"); got != "search" {
		t.Errorf("the focus is on %s", got)
	}
	value[string](p, `document.activeElement.value = ""`) // the protocol types the slash, too
	p.run(chromedp.KeyEvent("claim-77"))
	if rows := value[int](p, `document.querySelectorAll("#claims-rows tr:not([hidden])").length`); rows != 10 {
		t.Errorf("%d rows have claim-77", rows)
	}
	m.Journal.Step(statustest.Step("claim-771", "expand", journal.Started, 0))
	m.Journal.Step(statustest.Step("claim-100", "expand", journal.Started, 0))
	p.until(`document.getElementById("pvc/default/claim-100").textContent.includes("expand")`)
	if rows := value[int](p, `document.querySelectorAll("#claims-rows tr:not([hidden])").length`); rows != 10 {
		t.Errorf("after a change %d rows have claim-77", rows)
	}
}

// Rows come and go where they belong, and the focus stays where it is.
func TestRows_comeAndGo(t *testing.T) {
	m, url := serve(t, 3, page.Options{})
	p := newTab(t, 1100, 900)
	p.open(url + "volumes")
	p.until(`document.getElementById("live").textContent === "live"`)
	value[bool](p, `document.querySelector("#claims-rows a").focus() === undefined`)
	m.Put(t, statustest.Claim("claim-0015"), statustest.Claim("aaa"))
	const names = `[...document.querySelectorAll("#claims-rows th")].map((e) => e.textContent).join(" ")`
	p.until(names + ` === "aaa claim-000 claim-001 claim-0015 claim-002"`)
	m.Journal.Step(statustest.Step("claim-000", "expand", journal.Started, 0))
	p.until(`document.getElementById("pvc/default/claim-000").innerText.includes("expand")`)
	if got := value[string](p, "document.activeElement.textContent"); got != "claim-000" {
		t.Errorf("the focus is on %q", got)
	}
	err := m.Store.Update(func(tx *store.Tx) error {
		kind, _ := store.KindOf("persistentvolumeclaims")
		for _, name := range []string{"aaa", "claim-000", "claim-001", "claim-0015", "claim-002"} {
			if err := tx.Objects(kind).Delete("default/" + name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p.until(`document.getElementById("claims").innerText.includes("There is no claim.")`)
}

func TestToken_isGivenInTheForm(t *testing.T) {
	const token = "0123456789abcdef"
	_, url := serve(t, 1, page.Options{Token: token})
	p := newTab(t, 390, 844)
	p.run(chromedp.Navigate(url+"volumes"), chromedp.WaitVisible("#token"))
	p.run(chromedp.SendKeys("#token", "wrong"+kb.Enter), chromedp.WaitVisible("[role=alert]"))
	p.run(chromedp.SendKeys("#token", token+kb.Enter), chromedp.WaitVisible("#counts"))
	p.open(url + "volumes")
	p.until(`document.getElementById("live").textContent === "live"`)
	has(t, p.text(), "claim-000")
}
