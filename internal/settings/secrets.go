package settings

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor/sink"
)

// SecretFile reads a secret from a file, without the blanks around it.
func SecretFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usererr.Errorf("secret file: %v", err)
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil, usererr.Errorf("secret file %s is empty", path)
	}
	return text, nil
}

// secretOf reads the secret of a key that names its file.
func secretOf(key, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", usererr.Errorf("%s: %v", key, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", usererr.Errorf("%s %s is empty", key, path)
	}
	return secret, nil
}

// optionalSecret reads a secret from its file, if there is one.
func optionalSecret(path string) (sink.Secret, error) {
	if path == "" {
		return "", nil
	}
	text, err := SecretFile(path)
	return sink.Secret(text), err
}

// secretHeaders are the headers that stand in the file, and those that have files of their own, by their names as
// they are written, so that who takes them notices two that differ in case only.
func secretHeaders(plain, files map[string]string) (map[string]string, error) {
	out := map[string]string{}
	maps.Copy(out, plain)
	for name, path := range files {
		if _, twice := plain[name]; twice {
			return nil, usererr.Errorf("header %q stands both in headers and in header_files", name)
		}
		value, err := SecretFile(path)
		if err != nil {
			return nil, fmt.Errorf("header %q: %w", name, err)
		}
		out[name] = string(value)
	}
	return out, nil
}
