package settings

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor/sink"
)

// ReadSecret reads the secret of a key, or of a flag, that names its file, without the blanks around it.
func ReadSecret(key, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", usererr.Errorf("%s: %v", key, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", usererr.Errorf("%s: %s is empty", key, path)
	}
	return secret, nil
}

// optionalSecret reads a secret from its file, if there is one.
func optionalSecret(key, path string) (sink.Secret, error) {
	if path == "" {
		return "", nil
	}
	text, err := ReadSecret(key, path)
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
		value, err := ReadSecret(fmt.Sprintf("header_files: header %q", name), path)
		if err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, nil
}
