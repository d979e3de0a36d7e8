package workload

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// vault has the same values in a Secret and in a ConfigMap.
func vault(kind, name string) (map[string][]byte, error) {
	switch name {
	case "db":
		return map[string][]byte{"user": []byte("app"), "password": []byte("hunter2"), "host": []byte("h")}, nil
	case "sealed":
		return nil, errors.New("the key does not fit")
	case "own-" + kind:
		return map[string][]byte{"kind": []byte(kind)}, nil
	}
	return nil, nil
}

func fromSecret(name, key string, optional *bool) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func fromConfigMap(name, key string, optional *bool) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func allOf(prefix, name string, optional *bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: optional}}
}

func TestFromContainer_takesVariablesFromSecrets(t *testing.T) {
	pod := testPod(func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Args = []string{"$(PASSWORD)"}
		c.EnvFrom = []corev1.EnvFromSource{allOf("DB_", "db", nil), allOf("", "none", ptr(true))}
		c.Env = []corev1.EnvVar{
			{Name: "PASSWORD", ValueFrom: fromSecret("db", "password", nil)}, {Name: "URL", Value: "$(DB_user)@$(DB_host)"},
			{Name: "DB_host", Value: "other"}, {Name: "LEFT_OUT", ValueFrom: fromSecret("none", "x", ptr(true))},
			{Name: "LEFT_OUT_TOO", ValueFrom: fromSecret("db", "x", ptr(true))},
		}
	})
	got, err := FromContainer(pod, &pod.Spec.Containers[0], Sources{Values: vault})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"DB_host=other", "DB_password=hunter2", "DB_user=app", "PASSWORD=hunter2", "URL=app@h"}
	if difference := cmp.Diff(want, got.Env[3:]); difference != "" || got.Command[1] != "hunter2" {
		t.Errorf("command %v, environment:\n%s", got.Command, difference)
	}
}

// An encryption key that is changed in transit makes its data unreadable.
func TestFromContainer_refusesBytesThatAVariableCannotCarry(t *testing.T) {
	for _, value := range []string{"key\xff\xfe", "key\x00more"} {
		binary := func(string, string) (map[string][]byte, error) {
			return map[string][]byte{"key": []byte(value)}, nil
		}
		for name, change := range map[string]func(*corev1.Container){
			"env": func(c *corev1.Container) {
				c.Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: fromSecret("db", "key", nil)}}
			},
			"env of a ConfigMap": func(c *corev1.Container) {
				c.Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: fromConfigMap("db", "key", nil)}}
			},
			"envFrom": func(c *corev1.Container) { c.EnvFrom = []corev1.EnvFromSource{allOf("", "db", nil)} },
		} {
			pod := testPod(func(p *corev1.Pod) { change(&p.Spec.Containers[0]) })
			got, err := FromContainer(pod, &pod.Spec.Containers[0], Sources{Values: binary})
			if err == nil || strings.Contains(err.Error(), value) || !strings.Contains(err.Error(), "mount it as a file") {
				t.Errorf("%s of %q: %q, %v", name, value, got.Env, err)
			}
		}
	}
}

func secretPod(change func(*corev1.SecretVolumeSource)) *corev1.Pod {
	return testPod(func(p *corev1.Pod) {
		source := &corev1.SecretVolumeSource{SecretName: "db"}
		if change != nil {
			change(source)
		}
		p.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: source}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "s", MountPath: "/run/db"}}
	})
}

func TestFromContainer_putsASecretVolumeInMemory(t *testing.T) {
	host, user, password := File{Path: "host", Data: []byte("h"), Mode: 0o644}, File{Path: "user", Data: []byte("app"), Mode: 0o644}, File{Path: "password", Data: []byte("hunter2"), Mode: 0o644}
	chosen := File{Path: "a/b", Data: []byte("hunter2"), Mode: 0o400}
	for name, c := range map[string]struct {
		change func(*corev1.SecretVolumeSource)
		want   []File
	}{
		"all": {nil, []File{host, password, user}},
		"chosen": {func(s *corev1.SecretVolumeSource) {
			s.Items = []corev1.KeyToPath{{Key: "password", Path: "a/b", Mode: ptr(int32(0o400))}}
		}, []File{chosen}},
		"an optional one that is missing": {func(s *corev1.SecretVolumeSource) { s.SecretName, s.Optional = "none", ptr(true) }, nil},
		"an optional key that is missing": {func(s *corev1.SecretVolumeSource) {
			s.Items, s.Optional = []corev1.KeyToPath{{Key: "x", Path: "x"}, {Key: "user", Path: "user"}}, ptr(true)
		}, []File{user}},
	} {
		pod := secretPod(c.change)
		got, err := FromContainer(pod, &pod.Spec.Containers[0], Sources{Values: vault})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := []Mount{{Target: "/run/db", ReadOnly: true, Memory: true, Files: c.want}}
		if difference := cmp.Diff(want, got.Mounts); difference != "" {
			t.Errorf("%s: %s", name, difference)
		}
	}
	pod := secretPod(nil)
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(7))}
	got, err := FromContainer(pod, &pod.Spec.Containers[0], Sources{Values: vault})
	if err != nil || got.Mounts[0].Files[0].GID != 7 || got.Mounts[0].Files[0].Mode != 0o644 {
		t.Errorf("with an fsGroup: %+v, %v", got.Mounts, err)
	}
}

func TestFromContainer_namesTheSecretThatIsMissing(t *testing.T) {
	for want, change := range map[string]func(*corev1.Pod){
		`Secret none does not exist in namespace ns`: func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: fromSecret("none", "k", nil)}}
		},
		`Secret db in namespace ns has no key "k"`: func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: fromSecret("db", "k", nil)}}
		},
		`envFrom[0]: Secret none does not exist`: func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{allOf("", "none", nil)}
		},
		`volume "s": Secret db in namespace ns has no key "x"`: func(p *corev1.Pod) {
			*p = *secretPod(func(s *corev1.SecretVolumeSource) { s.Items = []corev1.KeyToPath{{Key: "x", Path: "x"}} })
		},
	} {
		pod := testPod(change)
		_, err := FromContainer(pod, &pod.Spec.Containers[0], Sources{Values: vault})
		if _, ok := errors.AsType[*MissingError](err); !ok || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	pod := testPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: fromSecret("sealed", "k", ptr(true))}}
	})
	_, err := FromContainer(pod, &pod.Spec.Containers[0], Sources{Values: vault})
	if _, missing := errors.AsType[*MissingError](err); err == nil || missing || !strings.Contains(err.Error(), "does not fit") {
		t.Errorf("one that cannot be read: %v", err)
	}
}

// Both kinds of objects are served alike, and are told apart.
func TestFromContainer_takesConfigMapsAsSecrets(t *testing.T) {
	config := corev1.LocalObjectReference{Name: "own-ConfigMap"}
	pod := testPod(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: config, DefaultMode: ptr(int32(0o400))}}},
			{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "own-Secret"}, Items: []corev1.KeyToPath{{Key: "kind", Path: "of/secret"}}}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: config}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "own-Secret"}}},
			}}}},
		}
		c := &p.Spec.Containers[0]
		c.VolumeMounts = []corev1.VolumeMount{{Name: "c", MountPath: "/c"}, {Name: "all", MountPath: "/all"},
			{Name: "all", MountPath: "/one", SubPath: "of/secret"}, {Name: "all", MountPath: "/dir", SubPath: "of"}}
		c.EnvFrom = []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: config}}}
		c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: fromConfigMap("own-ConfigMap", "kind", nil)},
			{Name: "LEFT_OUT", ValueFrom: fromConfigMap("none", "x", ptr(true))}}
	})
	got, err := FromContainer(pod, &pod.Spec.Containers[0], Sources{Values: vault})
	if err != nil {
		t.Fatal(err)
	}
	nested := File{Path: "of/secret", Data: []byte("Secret"), Mode: 0o644}
	want := []Mount{
		{Target: "/c", ReadOnly: true, Memory: true, Files: []File{{Path: "kind", Data: []byte("ConfigMap"), Mode: 0o400}}},
		{Target: "/all", ReadOnly: true, Memory: true, Files: []File{nested, {Path: "kind", Data: []byte("Secret"), Mode: 0o644}}},
		{Target: "/one", ReadOnly: true, Memory: true, SubPath: "of/secret", File: true, Files: []File{nested}},
		{Target: "/dir", ReadOnly: true, Memory: true, SubPath: "of", Files: []File{nested}},
	}
	if difference := cmp.Diff(want, got.Mounts); difference != "" {
		t.Error(difference)
	}
	if difference := cmp.Diff([]string{"P_kind=ConfigMap", "A=ConfigMap"}, got.Env[3:]); difference != "" {
		t.Error(difference)
	}
}

func TestFromContainer_namesTheConfigMapThatIsMissing(t *testing.T) {
	for want, change := range map[string]func(*corev1.Pod){
		"ConfigMap own-Secret does not exist in namespace ns": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: fromConfigMap("own-Secret", "kind", nil)}}
		},
		`subPath "x": no key of the volume has this path`: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "c", MountPath: "/c", SubPath: "x"}}
		},
	} {
		pod := testPod(change)
		if _, err := FromContainer(pod, &pod.Spec.Containers[0], Sources{Values: vault}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
