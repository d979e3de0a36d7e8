package redact

import "testing"

func TestIsSecretName(t *testing.T) {
	for name, want := range map[string]bool{
		"password": true, "adminPassword": true, "node.session.auth.password": true, "csi.storage.k8s.io/api_key": true, "AWS_SECRET_ACCESS_KEY": true,
		"accessKeyId": true, "chapUser": true, "--session-token": true, "secretName": false, "csi.storage.k8s.io/node-stage-secret-namespace": false,
		"kmsKeyId": false, "type": false, "": false,
	} {
		if IsSecretName(name) != want {
			t.Errorf("IsSecretName(%q) = %v", name, !want)
		}
	}
}
