package ebs

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// A volume that was deleted, or whose creation failed, has spent its client token for as
// long as EC2 remembers the token.
const (
	// tokenSteps is how many volumes of a name have a token by their number. Later ones
	// have one for each span of tokenEvery, so that a name can be used after any number of
	// failed volumes.
	tokenSteps = 20
	tokenEvery = time.Minute
	tokenLife  = 12 * time.Hour
)

// token is the client token of a name's n-th volume. The AWS EBS CSI driver has the same,
// so that both take the same steps.
func token(name string, n int) string {
	if n > 1 {
		name += "-" + strconv.Itoa(n)
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// tokenAt is the token of a name's n-th volume, or of the current time if n is above
// tokenSteps.
func tokenAt(name string, n int, now time.Time) string {
	if n <= tokenSteps {
		return token(name, n)
	}
	return token(name+"@"+strconv.FormatInt(now.Unix()/int64(tokenEvery/time.Second), 10), 1)
}
