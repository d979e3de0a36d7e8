package chart

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// With a certificate the pages are HTTPS, in every form of pod, and so are the
// probes, which would fail otherwise.
func TestMetrics_areHTTPSWithASecret(t *testing.T) {
	all := installations()
	for form, values := range forms() {
		all["windows "+form] = values
	}
	for name, values := range all {
		if flow, ok := strings.CutSuffix(values, "}"); ok {
			values = flow + ", metricsSecret: pages-tls}"
		} else {
			values += "\nmetricsSecret: pages-tls\n"
		}
		for template := range templates(render(t, values)) {
			container := template.Spec.Containers[0]
			if container.Name != "holdfast" { // csi-proxy's page has no TLS
				continue
			}
			wantPages(t, name, template.Spec, container)
		}
	}
}

func wantPages(t *testing.T, name string, spec corev1.PodSpec, container corev1.Container) {
	t.Helper()
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("%s: a probe asks %s by %q", name, probe.HTTPGet.Path, probe.HTTPGet.Scheme)
		}
	}
	mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "metrics-tls" })
	volume := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "metrics-tls" })
	if mount < 0 || volume < 0 {
		t.Errorf("%s: mounts %v of %v", name, container.VolumeMounts, spec.Volumes)
		return
	}
	given, path := flags(container.Args), container.VolumeMounts[mount].MountPath
	for flag, file := range map[string]string{"metrics-cert-file": "tls.crt", "metrics-key-file": "tls.key"} {
		if got := given[flag]; got != path+"/"+file && got != path+`\`+file {
			t.Errorf("%s: --%s=%s, and the certificate is in %s", name, flag, got, path)
		}
	}
	if secret := spec.Volumes[volume].Secret; secret == nil || secret.SecretName != "pages-tls" || *secret.DefaultMode != 0o440 {
		t.Errorf("%s: the volume is %+v", name, spec.Volumes[volume])
	}
}
