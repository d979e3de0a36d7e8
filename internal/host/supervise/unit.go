package supervise

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Unit is a driver that the host starts, as its file says.
type Unit struct {
	// Name is the driver's name, or another by which the unit is known. The
	// driver's own directory below plugins has it, too.
	Name string `json:"name"`
	// Command is executed without a shell. $(CSI_ENDPOINT), $(ROOT),
	// $(NODE_NAME), $(REGISTRY) and $(INSTANCE) are replaced in it, and in the
	// values of Environment; $$ is a $.
	Command          []string          `json:"command"`
	Environment      map[string]string `json:"environment,omitempty"`
	WorkingDirectory string            `json:"workingDirectory,omitempty"`
	// User is a number or a name, and may be followed by a colon and a group.
	User string `json:"user,omitempty"`
	// Register: the host registers the driver that serves $(CSI_ENDPOINT). Without
	// it the driver, or a registrar that it comes with, does so in $(REGISTRY).
	Register bool `json:"register,omitempty"`
	// Rolling: a changed unit is started next to the old one, which is stopped when
	// the new one is registered.
	Rolling bool    `json:"rolling,omitempty"`
	Restart Restart `json:"restart,omitzero"`
	// StopGrace is the time between SIGTERM and SIGKILL; 30 s if it is not given.
	StopGrace metav1.Duration `json:"stopGrace,omitzero"`
}

// Restart is the back-off of a driver that ends without having been stopped.
type Restart struct {
	First   metav1.Duration `json:"first,omitzero"`   // 500 ms
	Longest metav1.Duration `json:"longest,omitzero"` // 2 min
	// Stable is how long it has to run for the next pause to be First again; 1 min.
	Stable metav1.Duration `json:"stable,omitzero"`
}

// maximumFile bounds a unit's file, in bytes.
const maximumFile = 64 << 10

// ownDirectory is the one below plugins that volumes are staged in, as the
// kubelet has it. A unit's directory belongs to its user.
const ownDirectory = "kubernetes.io"

// Parse reads a unit. Fields that a unit does not have are refused.
func Parse(data []byte) (*Unit, error) {
	if len(data) > maximumFile {
		return nil, fmt.Errorf("it has more than %d bytes", maximumFile)
	}
	unit := &Unit{}
	if err := yaml.UnmarshalStrict(data, unit); err != nil {
		return nil, err
	}
	unit.complete()
	return unit, unit.check()
}

func (u *Unit) complete() {
	for field, value := range map[*metav1.Duration]time.Duration{
		&u.Restart.First: 500 * time.Millisecond, &u.Restart.Longest: 2 * time.Minute,
		&u.Restart.Stable: time.Minute, &u.StopGrace: 30 * time.Second,
	} {
		if field.Duration == 0 {
			field.Duration = value
		}
	}
}

func (u *Unit) check() error {
	switch problems := validation.IsDNS1123Subdomain(strings.ToLower(u.Name)); {
	case u.Name == "":
		return errors.New("name: it is missing")
	case len(u.Name) > 63:
		return fmt.Errorf("name: %q has more than 63 bytes", u.Name)
	case len(problems) > 0:
		return fmt.Errorf("name: %q: %s", u.Name, strings.Join(problems, "; "))
	case strings.EqualFold(u.Name, ownDirectory):
		return fmt.Errorf("name: plugins/%s is the host's own directory: choose another name", ownDirectory)
	case len(u.Command) == 0 || u.Command[0] == "":
		return errors.New("command: it is missing")
	case u.Rolling && !u.Register:
		return errors.New("rolling: it needs register: true, without which the host does not know when the new instance serves")
	case u.WorkingDirectory != "" && !filepath.IsAbs(u.WorkingDirectory):
		return fmt.Errorf("workingDirectory: %q is not an absolute path", u.WorkingDirectory)
	}
	for name, duration := range map[string]metav1.Duration{
		"restart.first": u.Restart.First, "restart.longest": u.Restart.Longest, "restart.stable": u.Restart.Stable,
		"stopGrace": u.StopGrace,
	} {
		if duration.Duration < 0 {
			return fmt.Errorf("%s: %s is negative", name, duration.Duration)
		}
	}
	return u.checkTexts()
}

// checkTexts finds variables that are never replaced, and zero bytes, which no argument
// can have, before the driver is started with them.
func (u *Unit) checkTexts() error {
	for field, text := range map[string]string{"user": u.User, "workingDirectory": u.WorkingDirectory} {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("%s: %q has a zero byte", field, text)
		}
	}
	none := func(name string) (string, bool) { return "", slices.Contains(variables(), name) }
	for i, argument := range u.Command {
		if _, err := replace(argument, none); err != nil {
			return fmt.Errorf("command[%d]: %w", i, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(u.Environment)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("environment: %q is not a name of a variable", name)
		}
		if _, err := replace(u.Environment[name], none); err != nil {
			return fmt.Errorf("environment.%s: %w", name, err)
		}
	}
	return nil
}

func variables() []string {
	return []string{"CSI_ENDPOINT", "INSTANCE", "NODE_NAME", "REGISTRY", "ROOT"}
}

// replace puts in the values of $(NAME).
func replace(text string, value func(string) (string, bool)) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", fmt.Errorf("%q has a zero byte", text)
	}
	var result strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		result.WriteString(before)
		switch {
		case !found:
			return result.String(), nil
		case strings.HasPrefix(rest, "$"):
			result.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			known, ok := value(name)
			if !closed || !ok {
				return "", fmt.Errorf("$(%s is none of the variables %s; write $$ for a $", name, strings.Join(variables(), ", "))
			}
			result.WriteString(known)
			text = after
		default:
			result.WriteByte('$')
			text = rest
		}
	}
}

// hashOf returns a hash that identifies a unit; it is never "".
func hashOf(u *Unit) string {
	if u == nil {
		return ""
	}
	data, err := json.Marshal(u)
	if err != nil {
		panic(err) // texts, numbers and flags only
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
