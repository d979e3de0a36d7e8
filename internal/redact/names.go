package redact

import (
	"slices"
	"strings"
)

// SecretNames are how the names of attributes, parameters, options and flags end whose
// values are secrets, in lower case. A hyphen stands for one of "-", "_" and ".", or nothing.
func SecretNames() []string {
	return []string{
		"password", "passwd", "pass", "passphrase", "secret", "token", "credential", "credentials", "authorization", "chap-user",
		"api-key", "access-key", "private-key", "secret-key", "api-key-id", "access-key-id", "private-key-id", "secret-key-id",
	}
}

// IsSecretName reports whether a name is that of a secret: adminPassword, for example. The
// name of a Secret that is referred to, such as provisioner-secret-name, is not.
func IsSecretName(name string) bool {
	joined := strings.NewReplacer("-", "", "_", "", ".", "")
	name = joined.Replace(strings.ToLower(name))
	return slices.ContainsFunc(SecretNames(), func(end string) bool { return strings.HasSuffix(name, joined.Replace(end)) })
}
