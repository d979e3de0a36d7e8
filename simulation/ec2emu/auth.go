package ec2emu

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// signature has the fields of a request's signature.
type signature struct {
	accessKey, region string
	at                time.Time
}

// signatureOf reads the Authorization header of signature version 4, or the
// parameters of a presigned GET. A request without either has nil.
func signatureOf(r *http.Request) (*signature, error) {
	scope, date := "", r.Header.Get("X-Amz-Date")
	if header := r.Header.Get("Authorization"); header != "" {
		fields, isV4 := strings.CutPrefix(header, "AWS4-HMAC-SHA256 ")
		if !isV4 {
			return nil, incomplete("the Authorization header does not start with AWS4-HMAC-SHA256")
		}
		for field := range strings.SplitSeq(fields, ",") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(field), "Credential="); ok {
				scope = value
			}
		}
		if scope == "" || !strings.Contains(fields, "Signature=") || !strings.Contains(fields, "SignedHeaders=") {
			return nil, incomplete("the Authorization header needs Credential, SignedHeaders and Signature")
		}
	} else {
		if scope = r.Form.Get("X-Amz-Credential"); scope == "" {
			return nil, nil //nolint:nilnil // a request that is not signed is not wrong by itself
		}
		date = r.Form.Get("X-Amz-Date")
	}
	parts := strings.Split(scope, "/") // key/date/region/service/aws4_request
	if len(parts) < 5 || parts[len(parts)-1] != "aws4_request" {
		return nil, incomplete("the credential's scope is not key/date/region/ec2/aws4_request")
	}
	key := strings.Join(parts[:len(parts)-4], "/")
	if len(key) > 128 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, incomplete("the access key is not one")
	}
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil {
		return nil, incomplete("X-Amz-Date is not a time such as 20060102T150405Z")
	}
	return &signature{accessKey: key, region: parts[len(parts)-3], at: at}, nil
}

func incomplete(why string) error {
	return badRequest("IncompleteSignature", "The request signature does not conform to AWS standards: "+why)
}

// admit rejects a caller that the knobs do not allow.
func (a Auth) admit(signed *signature, malformed error, now time.Time) error {
	if malformed != nil && a.Required {
		return malformed
	}
	switch {
	case signed == nil && a.Required:
		return &failure{Code: "MissingAuthenticationToken", Message: "Request is missing Authentication Token",
			Status: http.StatusForbidden}
	case a.Expired:
		return badRequest("RequestExpired", "Request has expired.")
	case signed == nil:
	case len(a.AccessKeys) > 0 && !slices.Contains(a.AccessKeys, signed.accessKey):
		return &failure{Code: "AuthFailure", Message: "AWS was not able to validate the provided access credentials",
			Status: http.StatusUnauthorized}
	case a.Region != "" && signed.region != a.Region:
		return &failure{Code: "AuthFailure", Status: http.StatusUnauthorized,
			Message: fmt.Sprintf("Credential should be scoped to a valid region: %s, not %s", a.Region, signed.region)}
	case a.Skew > 0 && now.Sub(signed.at).Abs() > time.Duration(a.Skew):
		return badRequest("RequestExpired", "Request has expired.")
	}
	return nil
}

// allow rejects a denied action.
func (a Auth) allow(action string) error {
	if slices.Contains(a.Denied, action) || slices.Contains(a.Denied, every) {
		return &failure{Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation.",
			Status: http.StatusForbidden}
	}
	return nil
}
