package call

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maximumFile bounds the bytes read from a file: a typing error may name a device.
const maximumFile = 1 << 20

// ReadFile reads a file, or standard input when its name is "-".
func ReadFile(name string, stdin io.Reader) ([]byte, error) {
	source := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		source = file
	}
	data, err := io.ReadAll(io.LimitReader(source, maximumFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(data) > maximumFile:
		return nil, fmt.Errorf("%s has more than %d bytes", name, maximumFile)
	}
	return data, nil
}

// ReadSecrets collects secrets from files: single ones, given as KEY=@FILE
// (KEY=@- reads standard input), and a whole set, a file with a JSON object of
// texts or a directory with one file for each key, as Kubernetes mounts a
// Secret. Contents are taken as they are, a newline at the end included.
func ReadSecrets(single []string, set string, stdin io.Reader) (map[string]string, error) {
	secrets := map[string]string{}
	if set != "" {
		if err := readSet(secrets, set, stdin); err != nil {
			return nil, fmt.Errorf("secrets: %w", err)
		}
	}
	for _, argument := range single {
		key, file, ok := strings.Cut(argument, "=")
		if !ok || !strings.HasPrefix(file, "@") || key == "" {
			return nil, fmt.Errorf("secret %s: want KEY=@FILE; a secret itself does not belong on a command line, where "+
				"every process of this machine can read it", key)
		}
		value, err := ReadFile(file[1:], stdin)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", key, err)
		}
		secrets[key] = string(value)
	}
	return secrets, nil
}

func readSet(secrets map[string]string, name string, stdin io.Reader) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return readDirectory(secrets, name)
	}
	data, err := ReadFile(name, stdin)
	if err != nil {
		return err
	}
	if json.Unmarshal(data, &secrets) != nil {
		// The decoder's error could quote a secret.
		return fmt.Errorf("%s is not a JSON object of texts", name)
	}
	return nil
}

func readDirectory(secrets map[string]string, name string) error {
	entries, err := os.ReadDir(name)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		// Kubernetes keeps its own ..data and the like next to the keys.
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		value, err := ReadFile(filepath.Join(name, entry.Name()), nil)
		if err != nil {
			return err
		}
		secrets[entry.Name()] = string(value)
	}
	if len(secrets) == 0 {
		return errors.New("the directory " + name + " is empty")
	}
	return nil
}
