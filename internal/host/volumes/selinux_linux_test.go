package volumes

import (
	"os"
	"path/filepath"
	"testing"
)

func TestContainerFiles_areThoseOfThePolicy(t *testing.T) {
	usual := fileContext{"system_u", "object_r", "container_file_t"}
	for name, c := range map[string]struct {
		config, contexts string
		want             fileContext
	}{
		"Debian's form": {
			"# comment\nSELINUX=enforcing\nSELINUXTYPE=default\n", "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:svirt_image_t:s0\"\n",
			fileContext{"system_u", "object_r", "svirt_image_t"},
		},
		"without quotes and a level": {"SELINUXTYPE=default", "file=a:b:c", fileContext{"a", "b", "c"}},
		"no line of files":           {"SELINUXTYPE=default", "ro_file = \"a:b:c:s0\"\n", usual},
		"half a label":               {"SELINUXTYPE=default", "file = \"system_u:object_r\"\n", usual},
		"an empty type":              {"SELINUXTYPE=default", "file = \"system_u:object_r::s0\"\n", usual},
		"no type of policy":          {"SELINUX=permissive\n", "file = \"a:b:c:s0\"\n", usual},
		"nothing":                    {"", "", usual},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "default", "contexts"), 0o700); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"config": c.config, "default/contexts/lxc_contexts": c.contexts} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := containerFiles(dir); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
