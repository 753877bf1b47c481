package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	httpclient "github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// addresses makes the command that sets each variable that is named to an address of
// this host that is free, all different.
func addresses(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) == 0 {
			ts.Fatalf("usage: addresses NAME…")
		}
		for _, name := range args {
			ts.Setenv(name, realserver.FreeAddress(t))
		}
	}
}

func TestAfterTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "now": now, "10m": now.Add(-10 * time.Minute), "-10m": now.Add(-10 * time.Minute), "2026-01-02T03:00:00Z": now.Add(-4*time.Minute - 5*time.Second),
	} {
		if got, err := afterTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"yesterday", "2026-01-02T03:04:06Z"} {
		if _, err := afterTime(text, now); exitCode(err) != exitUsage {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	key := zmtp.NewCurveKey()
	if err := writeNew(path, keyText(key)); err != nil {
		t.Fatal(err)
	}
	if got, err := settings.ReadCurveKey(path); err != nil || got.Public != key.Public || got.Secret != key.Secret {
		t.Errorf("%v, %v", got, err)
	}
	if err := writeNew(path, "other"); exitCode(err) != exitUsage {
		t.Errorf("a key was written over: %v", err)
	}
	public, secret, _ := strings.Cut(keyText(key), "\n")
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"for everybody": {keyText(key), 0o644, "can be read"},
		"only one":      {public, 0o600, "a public and a secret"},
		"no name":       {zmtp.EncodeKey(key.Public), 0o600, "line 1 is neither"},
		"short":         {public + "\n" + secret[:30], 0o600, "line 2"},
		"empty":         {"", 0o600, "line 1"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := settings.ReadCurveKey(path)
		if err == nil || !strings.Contains(err.Error(), c.says) || exitCode(err) != exitUsage {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), zmtp.EncodeKey(key.Secret)[:20]) {
			t.Errorf("%s: the error shows the secret", name)
		}
	}
}

func TestCacheExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{client.ErrNotFound, exitAbsent},
		{client.ErrTimeout, exitUnreachable},
		{client.ErrPartitioned, exitUnreachable},
		{client.ErrFailed, exitFailed},
		{client.ErrBadRequest, exitUsage},
		{client.ErrConfig, exitUsage},
		{&httpclient.Error{Status: 404}, exitAbsent},
		{&httpclient.Error{Status: 502}, exitFailed},
		{&httpclient.Error{Status: 503}, exitUnreachable},
		{&httpclient.Error{Status: 401}, exitFailed},
		{&httpclient.Error{Status: 400}, exitUsage},
		{&url.Error{Op: "Get", Err: errors.New("refused")}, exitUnreachable},
		{errors.New("anything"), exitFailed},
	} {
		if got := exitCode(fmt.Errorf("get: %w", c.err)); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}
