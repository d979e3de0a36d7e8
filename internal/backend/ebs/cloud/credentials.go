package cloud

import (
	"context"
	"errors"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-csi/holdfast/internal/redact"
)

// credentialsCache returns credentials, marks its failures as credentialsError, and hides
// the credentials in texts.
type credentialsCache struct {
	inner aws.CredentialsProvider

	mu sync.Mutex
	// used are the last credentials and those before, with which a call may be signed that
	// is under way.
	used [2]aws.Credentials
}

// Retrieve implements aws.CredentialsProvider.
func (c *credentialsCache) Retrieve(ctx context.Context) (aws.Credentials, error) {
	if c.inner == nil {
		return aws.Credentials{}, &credentialsError{errors.New("no source of credentials is configured")}
	}
	got, err := c.inner.Retrieve(ctx)
	if err != nil && ctx.Err() == nil {
		return got, &credentialsError{err}
	}
	c.remember(got)
	return got, err
}

func (c *credentialsCache) remember(got aws.Credentials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if got.AccessKeyID != "" && got.AccessKeyID != c.used[0].AccessKeyID {
		c.used = [2]aws.Credentials{got, c.used[0]}
	}
}

// hide removes the credentials from a text. EC2's answers do not have them; those of a
// proxy or of another endpoint may show the request that they refuse.
func (c *credentialsCache) hide(text string) string {
	c.mu.Lock()
	used := c.used
	c.mu.Unlock()
	var secrets redact.Secrets
	for _, one := range used {
		for _, value := range []string{one.AccessKeyID, one.SecretAccessKey, one.SessionToken} {
			secrets.Add(value)
		}
	}
	return secrets.Text(text)
}

// invalidate makes the next call fetch new credentials.
func (c *credentialsCache) invalidate() {
	if cache, ok := c.inner.(*aws.CredentialsCache); ok {
		cache.Invalidate()
	}
}
