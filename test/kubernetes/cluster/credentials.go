package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// user is a user of the API server, who authenticates with a token.
type user struct {
	name   string
	groups string
	token  string
}

// users are the administrator, the parts of the control plane, and the nodes,
// each with the rights that Kubernetes itself gives to its name or group.
func users(nodes []string) []user {
	all := []user{
		{name: "admin", groups: "system:masters"},
		{name: "snapshot-controller", groups: "system:masters"},
		{name: "system:kube-controller-manager"},
		{name: "system:kube-scheduler"},
	}
	for _, n := range nodes {
		all = append(all, user{name: "system:node:" + n, groups: "system:nodes"})
	}
	for i := range all {
		all[i].token = randomHex(16)
	}
	return all
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // which never fails
	return hex.EncodeToString(b)
}

// file is the name of the user's kubeconfig among the credentials.
func (u user) file() string {
	return strings.NewReplacer("system:", "", ":", "-").Replace(u.name) + ".kubeconfig"
}

// kubeconfig logs the user in at the server.
func (u user) kubeconfig(server string, ca []byte) ([]byte, error) {
	named := func(kind string, content map[string]any) []any {
		return []any{map[string]any{"name": "holdfast-test", kind: content}}
	}
	return toYAML(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": "holdfast-test",
		"clusters":        named("cluster", map[string]any{"server": server, "certificate-authority-data": ca}),
		"users":           named("user", map[string]any{"token": u.token}),
		"contexts":        named("context", map[string]any{"cluster": "holdfast-test", "user": "holdfast-test"}),
	})
}

// writeCredentials writes the certificates, keys, tokens and kubeconfigs of all parts.
func writeCredentials(l layout, p plan, nodes []string) error {
	if err := os.MkdirAll(l.path("credentials"), 0o700); err != nil {
		return err
	}
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.secret("ca.crt"), ca.pem, 0o600); err != nil {
		return err
	}
	if err := writeCertificates(l, p, ca); err != nil {
		return err
	}
	return writeUsers(l, p, ca.pem, users(nodes))
}

func writeUsers(l layout, p plan, ca []byte, users []user) error {
	var tokens strings.Builder
	for i, u := range users {
		fmt.Fprintf(&tokens, "%s,%q,%d,%q\n", u.token, u.name, 1000+i, u.groups)
		config, err := u.kubeconfig(p.server(), ca)
		if err != nil {
			return err
		}
		if err := os.WriteFile(l.secret(u.file()), config, 0o600); err != nil {
			return err
		}
		if u.name == "admin" {
			if err := os.WriteFile(l.kubeconfig(), config, 0o600); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(l.secret("tokens.csv"), []byte(tokens.String()), 0o600)
}

// authority signs the certificates of one cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificateTemplate("holdfast-test-ca")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &authority{certificate: certificate, key: key, pem: encoded}, nil
}

func certificateTemplate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// writeCertificates makes the API server's certificates, as a server and as the
// kubelets' client, and the key that signs the tokens of service accounts.
func writeCertificates(l layout, p plan, ca *authority) error {
	server := certificateTemplate("kube-apiserver")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	server.IPAddresses = []net.IP{p.controlPlane().AsSlice(), p.service().AsSlice(), net.IPv4(127, 0, 0, 1)}
	if err := ca.write(l, "apiserver", server); err != nil {
		return err
	}
	client := certificateTemplate("kube-apiserver-kubelet-client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	client.Subject.Organization = []string{"system:masters"}
	if err := ca.write(l, "kubelet-client", client); err != nil {
		return err
	}
	return ca.write(l, "service-accounts", certificateTemplate("service-accounts"))
}

// write makes a key and its certificate: NAME.key and NAME.crt.
func (a *authority) write(l layout, name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	if err := os.WriteFile(l.secret(name+".key"), encoded, 0o600); err != nil {
		return err
	}
	encoded = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return os.WriteFile(l.secret(name+".crt"), encoded, 0o600)
}
