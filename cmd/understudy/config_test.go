package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// secretMark is what no output may have.
const secretMark = "s3cretm4rker"

// TestWithoutStateDirectory: where there is no place for a store of one's own, only what needs such a store is refused.
func TestWithoutStateDirectory(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_STATE_HOME", "UNDERSTUDY_STORE", "UNDERSTUDY_SERVER"} {
		t.Setenv(name, "")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "understudy.yaml")
	if err := os.WriteFile(file, []byte("store: redis://127.0.0.1:1/0\nlisten: 127.0.0.1:0\nqueues: [{queue: q, exec: {command: [cat]}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"version":                            {exitOK, ""},
		"completion bash":                    {exitOK, ""},
		"config check " + file:               {exitOK, ""},
		"config show " + file:                {exitOK, ""},
		"doctor --ready --server " + srv.URL: {exitOK, ""},
		"doctor -c " + file:                  {exitUnreachable, "redis"},
		"serve -c " + file:                   {exitUsage, "the store redis://127.0.0.1:1/0 keeps no queues"},
		"role list":                          {exitUsage, "no --store is given and there is no state directory"},
		"store path":                         {exitUsage, "no --store is given and there is no state directory"},
	} {
		var out, err bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &err); code != want.code || !strings.Contains(err.String(), want.text) {
			t.Errorf("%s: exit code %d: %s", args, code, err.String())
		}
	}
}

// No command and no error prints a secret of a file, right or wrong.
func TestSecretsAreNeverPrinted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("UNDERSTUDY_STORE", "")
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte(secretMark+"-and-more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	right := "store: postgres://u:" + secretMark + "@127.0.0.1:1/db\ntoken: " + secretMark + "-and-more\nqueues: [{queue: q, webhook: {url: 'https://u:" + secretMark + "@h/', headers: {A: " + secretMark + "}, secret_file: " + file + "}}]\n" +
		"monitor: {sinks: [{sink: s, slack: {url: 'https://h/" + secretMark + "'}}, {sink: t, slack: {url_file: " + file + "}}]}\nsentinel: {listen: '127.0.0.1:0', password_file: " + file + "}\n"
	for name, text := range map[string]string{
		"as it is": right, "an unknown key": right + "tokn: " + secretMark + "\n", "twice": right + "token: " + secretMark + "\n",
		"a bad number": right + "history_keep: 7\n", "of another kind": right + "token_file: [" + secretMark + "]\n", "no YAML": right + "roles: [ {",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "understudy.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"config", "show", path}, {"config", "show", path, "-o", "json"}, {"config", "check", path}, {"config", "check", path, "-o", "json"}} {
				var out, err bytes.Buffer
				run(t.Context(), args, &out, &err)
				if said := out.String() + err.String(); strings.Contains(said, secretMark) || said == "" {
					t.Errorf("%v: %s", args, said)
				}
			}
		})
	}
}
