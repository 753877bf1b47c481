package docs_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// The webhook of examples/outbox receives beside a connection on which nothing comes, and again after somebody who read its
// database let a commit fail.
func TestReceiver(t *testing.T) {
	t.Parallel()
	python := realserver.Find(t, "python3", "/usr/bin/python3")
	text, err := os.ReadFile("../examples/outbox/receiver.py")
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), realserver.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	// It waits for a lock, and for a request, as long as a test likes to.
	write(t, filepath.Join(dir, "receiver.py"), strings.NewReplacer(
		"8080", port, "isolation_level=None", "isolation_level=None, timeout=0", "timeout = 10 ", "timeout = 0.1 ").Replace(string(text)))
	secret := []byte("a secret of the two")
	write(t, filepath.Join(dir, "hook.key"), base64.StdEncoding.EncodeToString(secret))
	cmd := exec.Command(python, "receiver.py")
	cmd.Dir = dir
	receiver := realserver.Start(t, cmd)
	realserver.Eventually(t, time.Minute, "the receiver listens", func() error {
		idle, err := net.Dial("tcp", address)
		if err == nil {
			t.Cleanup(func() { _ = idle.Close() })
		}
		return err
	})

	client := http.Client{Timeout: time.Minute}
	send := func(id string) error {
		stamp := strconv.FormatInt(time.Now().Unix(), 10)
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "%s.%s.text of %s", id, stamp, id)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address, strings.NewReader("text of "+id))
		if err != nil {
			return err
		}
		for name, value := range map[string]string{
			"Webhook-Id": id, "Webhook-Timestamp": stamp, "Webhook-Signature": "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
			"Idempotency-Key": id, "Understudy-Key": "acme", "Understudy-Term": "1",
		} {
			req.Header.Set(name, value)
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusNoContent {
			return fmt.Errorf("status %d", res.StatusCode)
		}
		return nil
	}
	if err := send("one"); err != nil {
		t.Fatalf("beside an idle connection: %v", err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "receiver.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	reader, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := reader.QueryRowContext(t.Context(), "SELECT count(*) FROM effect").Scan(&n); err != nil || n != 1 {
		t.Fatalf("%d messages, %v", n, err)
	}
	if err := send("two"); err == nil {
		t.Error("a message was confirmed that could not be committed")
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"two", "three", "one"} {
		if err := send(id); err != nil {
			t.Errorf("%s, when nobody reads any more: %v", id, err)
		}
	}
	receiver.Kill()
	if got, want := strings.Count(receiver.Output(), "acme "), 3; got != want {
		t.Errorf("%d messages took effect, want %d:\n%s", got, want, receiver.Output())
	}
}
