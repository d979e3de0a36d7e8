package ebs

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"sync"
	"time"
)

// A volume that is gone, deleted or never made for want of a key, has spent its
// client token for as long as EC2 remembers that.
const (
	// tokenSteps is how many volumes of a name have a token of their own. The
	// later ones have one for each span of tokenEvery, so that a name can be used
	// however often its volume failed.
	tokenSteps = 20
	tokenEvery = time.Minute
	tokenLife  = 12 * time.Hour
)

// token is the client token of a name's n-th volume, that of the AWS EBS CSI
// driver, so that both take the same steps.
func token(name string, n int) string {
	if n > 1 {
		name += "-" + strconv.Itoa(n)
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// tokenAt is the token of a name's n-th volume, or of this moment when n is above
// tokenSteps.
func tokenAt(name string, n int, now time.Time) string {
	if n <= tokenSteps {
		return token(name, n)
	}
	return token(name+"@"+strconv.FormatInt(now.Unix()/int64(tokenEvery/time.Second), 10), 1)
}

// spentTokens remembers which tokens of a name are spent, so that a repeat does
// not try them again. Losing it with the process costs those calls alone.
type spentTokens struct {
	mu    sync.Mutex
	names map[string]spentToken
}

type spentToken struct {
	n     int
	until time.Time
}

// next returns the number of the first token of a name that may be good.
func (s *spentTokens) next(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.names[name]; time.Now().Before(last.until) {
		return last.n + 1
	}
	return 1
}

// note records that a name's first n tokens are spent.
func (s *spentTokens) note(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.names, func(_ string, t spentToken) bool { return !now.Before(t.until) })
	if s.names == nil {
		s.names = map[string]spentToken{}
	}
	s.names[name] = spentToken{n: n, until: now.Add(tokenLife)}
}
