package cloud

import (
	"fmt"
	"log/slog"
	"regexp"

	"github.com/aws/smithy-go/logging"
)

// requestLog logs the requests and answers that the SDK reports.
type requestLog struct {
	log  *slog.Logger
	hide func(string) string // the credentials in a text
}

// signing matches the headers with which a request could be signed or repeated by a
// reader of the log.
var signing = regexp.MustCompile(`(?im)^((?:authorization|x-amz-security-token):).*$`)

// Logf implements logging.Logger.
func (r requestLog) Logf(_ logging.Classification, format string, values ...any) {
	text := r.hide(signing.ReplaceAllString(fmt.Sprintf(format, values...), "$1 [redacted]"))
	r.log.Info("EC2 request or answer", "component", "aws-sdk", "text", text)
}
