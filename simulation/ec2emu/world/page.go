package world

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
)

// Sizes of pages that EC2 accepts (5 to 1000, 500 for modifications).
const (
	minPage           = 5
	maxPage           = 1000
	maxModifications  = 500
	digestLength      = 8
	pageTokenLength   = 8 + digestLength + sha256.Size
	unknownTokenError = "InvalidPaginationToken"
)

// page is a page of a listing. Its token has the last resource of the page and a digest of
// the request, with an authentication code. So the world stores no tokens, resources that
// are created or deleted meanwhile neither repeat nor hide others, and a token of another
// world is rejected.
type page struct {
	world  *World
	digest []byte
	after  int64
	limit  int // 0 is none
	next   string
	given  int
	done   bool
}

// openPage checks a page request. request is the part that must be equal for all pages.
func (w *World) openPage(p Page, most int32, request any) (*page, *Error) {
	opened := &page{world: w, limit: w.knobs.DefaultPage, digest: digestOf(request)}
	if p.MaxResults != nil {
		if *p.MaxResults < minPage {
			return nil, invalid("Value ( %d ) for parameter maxResults is invalid. Expecting a value greater than or equal to %d.", *p.MaxResults, minPage)
		}
		// A larger page is not an error: EC2 returns its largest one
		// (DescribeVolumes, MaxResults).
		opened.limit = int(min(*p.MaxResults, most))
	}
	if p.NextToken == "" {
		return opened, nil
	}
	token, err := base64.RawURLEncoding.DecodeString(p.NextToken)
	if err != nil || len(token) != pageTokenLength ||
		!hmac.Equal(token[:digestLength], opened.digest) ||
		!hmac.Equal(token[8+digestLength:], opened.sign(token[:8+digestLength])) {
		return nil, refuse(unknownTokenError, "The pagination token is not valid for this request: %s", p.NextToken)
	}
	opened.after = int64(binary.BigEndian.Uint64(token[digestLength:]))
	return opened, nil
}

// take reports whether the resource of that order belongs on the page; those
// that match are offered in ascending order.
func (p *page) take(last int64) bool {
	if p.limit > 0 && p.given == p.limit {
		if !p.done {
			p.done = true
			p.next = p.token(last)
		}
		return false
	}
	p.given++
	return true
}

func (p *page) token(after int64) string {
	text := binary.BigEndian.AppendUint64(append([]byte{}, p.digest...), uint64(after))
	return base64.RawURLEncoding.EncodeToString(append(text, p.sign(text)...))
}

func (p *page) sign(text []byte) []byte {
	mac := hmac.New(sha256.New, p.world.secret[:])
	mac.Write(text)
	return mac.Sum(nil)
}

func digestOf(request any) []byte {
	data, err := json.Marshal(request)
	if err != nil {
		data = nil
	}
	sum := sha256.Sum256(data)
	return sum[:digestLength]
}
