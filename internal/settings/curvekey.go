package settings

import (
	"io/fs"
	"os"
	"strings"

	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// ReadCurveKey reads what keygen wrote. The error never shows the secret.
func ReadCurveKey(path string) (key zmtp.CurveKey, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return key, usererr.Errorf("key file: %v", err)
	}
	if info.Mode().Perm()&0o077&^fs.FileMode(0o040) != 0 {
		return key, usererr.Errorf("key file %s can be read or written by others (mode %04o): chmod 600 it", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return key, usererr.Errorf("key file: %v", err)
	}
	found := map[string][32]byte{}
	for n, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if (name != "public" && name != "secret") || value == "" {
			return key, usererr.Errorf("key file %s: line %d is neither \"public KEY\" nor \"secret KEY\"; see: understudy cache keygen", path, n+1)
		}
		if found[name], err = zmtp.DecodeKey(strings.TrimSpace(value)); err != nil {
			return key, usererr.Errorf("key file %s: line %d: the %s key is not 40 characters of Z85", path, n+1, name)
		}
	}
	if len(found) != 2 {
		return key, usererr.Errorf("key file %s: it needs a public and a secret key; see: understudy cache keygen", path)
	}
	return zmtp.CurveKey{Public: found["public"], Secret: found["secret"]}, nil
}
