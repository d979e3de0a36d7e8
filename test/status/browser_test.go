// Package status_test tests the status page in a real browser: the built host with real
// volumes, and a page of 1,000.
package status_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// limit is for what a browser does, on a machine that has other things to do.
const limit = 2 * time.Minute

// tab is a page of a browser. It records what the page loads and complains about.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	requested  []string
	complaints []string
}

// newTab opens a tab in a browser of its own, of a width in pixels.
func newTab(t *testing.T, width, height int) *tab {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.NoSandbox, // the tests are root
		chromedp.Flag("disable-gpu", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true),
		chromedp.WindowSize(width, height))
	allocator, endBrowser := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endTab := chromedp.NewContext(allocator)
	p := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		endTab()
		endBrowser()
	})
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	var cancel context.CancelFunc
	p.ctx, cancel = context.WithTimeout(ctx, 2*limit) // the browser starts without a limit
	t.Cleanup(cancel)
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, audits.Enable, cdp.Empty{})
	call(p, runtime.Enable, cdp.Empty{})
	p.run(chromedp.EmulateViewport(int64(width), int64(height)))
	return p
}

// call sends a command of the protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], parameters P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, command, parameters); err != nil {
		p.t.Fatal(err)
	}
}

// prefers sets the colour scheme that the browser asks for.
func (p *tab) prefers(scheme string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch event := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requested = append(p.requested, event.Request.URL)
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError || event.Entry.Level == log.EntryLevelWarning {
			p.complaints = append(p.complaints, fmt.Sprintf("%s: %s", event.Entry.Source, event.Entry.Text))
		}
	case *audits.EventIssueAdded:
		if event.Issue.Details.ContentSecurityPolicyIssueDetails != nil {
			p.complaints = append(p.complaints, fmt.Sprintf("%s: %+v", event.Issue.Code, *event.Issue.Details.ContentSecurityPolicyIssueDetails))
		}
	case *runtime.EventExceptionThrown:
		p.complaints = append(p.complaints, event.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError || event.Type == runtime.ConsoleAPICalledTypeWarning {
			p.complaints = append(p.complaints, fmt.Sprintf("the console has a message of type %s", event.Type))
		}
	}
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// open loads a page and waits for its content.
func (p *tab) open(address string) {
	p.t.Helper()
	p.run(chromedp.Navigate(address), chromedp.WaitVisible("main h1"))
}

// value evaluates an expression.
func value[T any](p *tab, expression string) T {
	p.t.Helper()
	result, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// until waits until an expression is true, and returns how long that took.
func (p *tab) until(expression string) time.Duration {
	p.t.Helper()
	begin := time.Now()
	for !value[bool](p, expression) {
		if time.Since(begin) > limit {
			p.t.Fatalf("not within %v: %s\n%s", limit, expression, p.text())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

func (p *tab) text() string {
	p.t.Helper()
	return value[string](p, "document.body.innerText")
}

// isQuiet fails if the page loaded something from elsewhere, or if the browser complained.
func (p *tab) isQuiet(origin string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range p.requested {
		parsed, err := url.Parse(address)
		if err != nil || parsed.Scheme+"://"+parsed.Host != origin {
			p.t.Errorf("the page requests %s", address)
		}
	}
	if len(p.requested) == 0 {
		p.t.Error("no request was seen: the test sees nothing")
	}
	for _, text := range p.complaints {
		p.t.Errorf("the browser says %s", text)
	}
}

func originOf(t *testing.T, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Scheme + "://" + parsed.Host
}

// screenshot writes a picture of the window as a PNG.
func (p *tab) screenshot(path string) {
	p.t.Helper()
	// The names of the machine that runs the test do not belong into the documentation.
	value[int](p, `[...document.querySelectorAll(".path")].forEach((e) => { e.textContent = "/var/lib/holdfast/pool"; }),
		[...document.querySelectorAll("header .name span")].forEach((e) => { e.textContent = "machine server1"; }), 0`)
	data, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if len(data) > 150<<10 {
		p.t.Errorf("%s has %d bytes", path, len(data))
	}
	if err := os.WriteFile(path, data, 0o644); err != nil { //nolint:gosec // a picture of the documentation
		p.t.Fatal(err)
	}
}

func has(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in\n%s", word, text)
		}
	}
}
