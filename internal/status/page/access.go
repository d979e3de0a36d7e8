package page

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	. "maragu.dev/gomponents/html" //nolint:staticcheck // as in shell.go
)

const (
	loginPath  = Prefix + "login"
	cookieName = "holdfast-status"
	// sessionLimit is how long a browser need not give the token again.
	sessionLimit = 12 * time.Hour
	// ShortestToken in bytes: what is shorter can be guessed.
	ShortestToken = 16
	// guessDelay slows down guesses; at most mostGuesses wait at the same time.
	guessDelay  = time.Second
	mostGuesses = 16
)

// LoopbackHosts are the names of a page that is served on a loopback address.
func LoopbackHosts() []string { return []string{"127.0.0.1", "::1", "localhost"} }

// mayAddress checks the name by which a browser addresses the page.
func (h *Handler) mayAddress(host string) bool {
	if len(h.options.Hosts) == 0 {
		return true
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return slices.Contains(h.options.Hosts, strings.ToLower(strings.TrimSuffix(name, ".")))
}

// access lets clients in that have the token: as a bearer, or in a browser's session,
// whose cookie has a signature instead of the token.
type access struct {
	token   [sha256.Size]byte
	key     []byte
	secure  bool
	now     func() time.Time
	guesses chan struct{}
	delay   time.Duration
	// formLimit is how long a browser may take to send the form.
	formLimit time.Duration
}

// newAccess returns nil without a token.
func newAccess(token string, secure bool) (*access, error) {
	if token == "" {
		return nil, nil //nolint:nilnil // no access control
	}
	if len(token) < ShortestToken {
		return nil, fmt.Errorf("the token of the status page has %d bytes; it needs %d at least", len(token), ShortestToken)
	}
	a := &access{
		token: sha256.Sum256([]byte(token)), key: make([]byte, sha256.Size), secure: secure, now: time.Now,
		guesses: make(chan struct{}, mostGuesses), delay: guessDelay, formLimit: 10 * time.Second,
	}
	if _, err := rand.Read(a.key); err != nil {
		return nil, fmt.Errorf("a key for the sessions of the status page: %w", err)
	}
	return a, nil
}

// isToken compares in constant time.
func (a *access) isToken(given string) bool {
	sum := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1
}

// permits reports whether a request has the token or a session.
func (a *access) permits(r *http.Request) bool {
	if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return a.isToken(given)
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return false
	}
	ends, signature, _ := strings.Cut(cookie.Value, ".")
	seconds, err := strconv.ParseInt(ends, 10, 64)
	return err == nil && hmac.Equal([]byte(signature), []byte(a.signature(ends))) && a.now().Before(time.Unix(seconds, 0))
}

func (a *access) signature(ends string) string {
	mac := hmac.New(sha256.New, a.key)
	_, _ = mac.Write([]byte(ends)) // never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// ask answers a client without the token: a browser with the form, another program with
// a sentence.
func (a *access) ask(w http.ResponseWriter, r *http.Request) {
	given := r.Header.Get("Authorization") != ""
	if given && !a.slow(r) {
		refuse(w, http.StatusTooManyRequests, "too many wrong tokens at once: try again")
		return
	}
	if given || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("WWW-Authenticate", `Bearer realm="holdfast status"`)
		refuse(w, http.StatusUnauthorized, "the token is missing or wrong: send it as 'Authorization: Bearer TOKEN'")
		return
	}
	a.form(w, http.StatusUnauthorized, "")
}

// login takes the token from the form and begins a session.
func (a *access) login(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		a.form(w, http.StatusOK, "")
		return
	case http.MethodPost:
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		refuse(w, http.StatusMethodNotAllowed, "the page only reads")
		return
	}
	// A client that never sends the form must not hold the connection.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.formLimit)) // a test has no connection
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	if !a.isToken(r.PostFormValue("token")) {
		if !a.slow(r) {
			refuse(w, http.StatusTooManyRequests, "too many wrong tokens at once: try again")
			return
		}
		a.form(w, http.StatusForbidden, "This is not the token.")
		return
	}
	ends := a.now().Add(sessionLimit)
	value := strconv.FormatInt(ends.Unix(), 10)
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value + "." + a.signature(value), Path: Prefix, Expires: ends,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: a.secure,
	})
	http.Redirect(w, r, Prefix, http.StatusSeeOther)
}

// slow delays the answer to a wrong token. It returns false if too many wait already.
func (a *access) slow(r *http.Request) bool {
	select {
	case a.guesses <- struct{}{}:
		defer func() { <-a.guesses }()
	default:
		return false
	}
	timer := time.NewTimer(a.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	return true
}

// form asks for the token.
func (a *access) form(w http.ResponseWriter, code int, wrong string) {
	header := w.Header()
	header.Set("Content-Security-Policy", strings.Replace(policy, "form-action 'none'", "form-action 'self'", 1))
	header.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	document := Doctype(HTML(Lang("en"),
		Head(Meta(Charset("utf-8")), Meta(Name("viewport"), Content("width=device-width, initial-scale=1")),
			Meta(Name("color-scheme"), Content("light dark")), TitleEl(g.Text("Token · Holdfast")),
			Link(Rel("stylesheet"), Href(Prefix+"assets/status.css"))),
		Body(Main(ID("main"), H1(g.Text("Holdfast")),
			Form(Method("post"), Action(loginPath), Class("login"),
				Label(For("token"), g.Text("Token of the status page")),
				Input(ID("token"), Name("token"), Type("password"), AutoComplete("current-password"), Required(), AutoFocus()),
				Button(Type("submit"), g.Text("Show the page"))),
			g.If(wrong != "", P(Role("alert"), Class("problems"), g.Text(wrong))))),
	))
	_ = document.Render(w) // the client has gone
}
