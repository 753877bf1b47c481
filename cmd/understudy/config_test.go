package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// secretMark is what no output may have.
const secretMark = "s3cretm4rker"

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
