package podlabel

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/kubeapi"
	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
)

// served is a stand-in behind TLS, and the folder that a pod has of its service account.
func served(t *testing.T, api *kubeapi.Server) (address, dir string) {
	t.Helper()
	server := httptest.NewUnstartedServer(api)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	dir = t.TempDir()
	write(t, filepath.Join(dir, "token"), "first\n")
	write(t, filepath.Join(dir, "namespace"), "shop")
	write(t, filepath.Join(dir, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	return server.Listener.Addr().String(), dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestAnswers meets what an API server, and what stands before it, can answer; each is survived, and one line says it.
func TestAnswers(t *testing.T) {
	conflicts := 3
	faults := []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request) bool
		logged string
	}{
		{"403", code(http.StatusForbidden, `{"message":"pods \"orders-0\" is forbidden"}`), `403 Forbidden: pods \"orders-0\" is forbidden (its service account needs the verb patch on pods)`},
		{"404", code(http.StatusNotFound, `{"message":"pods \"orders-0\" not found"}`), "not found"},
		{"422", code(http.StatusUnprocessableEntity, `{"message":"is invalid"}`), "is invalid"},
		{"429", code(http.StatusTooManyRequests, "slow down"), "429"},
		{"500 of a balancer", code(http.StatusBadGateway, "<html>"), "502"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return true
		}, "307"},
		{"not JSON", code(http.StatusOK, "<html>"), "not a pod"},
		{"a pod without a version", code(http.StatusOK, `{"metadata":{}}`), "not a pod"},
		{"too much", func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = io.CopyN(w, endless{}, mostAnswer+10)
			return true
		}, "not a pod"},
		{"reset", hangUp, "EOF"},
		{"half an answer", func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"metadata":`)
			return true
		}, "the API server's answer"},
		{"conflicts", func(w http.ResponseWriter, r *http.Request) bool {
			conflicts--
			return conflicts >= 0 && code(http.StatusConflict, `{"reason":"Conflict"}`)(w, r)
		}, ""},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			api := kubeapi.New("shop", "orders-0", "first")
			var asked atomic.Int32
			var working atomic.Bool
			api.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				asked.Add(1)
				return !working.Load() && f.answer(w, r)
			}
			address, dir := served(t, api)
			var log syncbuffer.Buffer
			p, err := newPod("orders-0", address, dir, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			stop := start(t, p)
			p.Set(true, 7)
			await(t, "a second try", func() bool { return asked.Load() >= 2 })
			if f.logged != "" {
				await(t, f.logged, func() bool { return strings.Contains(log.String(), f.logged) })
			}
			working.Store(true)
			await(t, "a label", func() bool { l, e := shownBy(api); return l == Primary && e == "7" })
			p.Set(false, 0)
			stop()
			wantShown(t, api, "", "7")
			if n := strings.Count(log.String(), "level=WARN"); f.logged == "" && n != 0 || f.logged != "" && n != 1 {
				t.Errorf("%d warnings:\n%s", n, log.String())
			}
		})
	}
}

func code(status int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func hangUp(w http.ResponseWriter, _ *http.Request) bool {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.(interface{ NetConn() net.Conn }).NetConn().(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	return true
}

// The token is renewed in its file; a server with another authority gets none.
func TestAccount(t *testing.T) {
	api := kubeapi.New("shop", "orders-0", "second")
	address, dir := served(t, api)
	p, err := newPod("orders-0", address, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.patch(t.Context(), []byte("{}")); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a token that has ended: %v", err)
	}
	write(t, filepath.Join(dir, "token"), "second\n")
	if have, err := p.patch(t.Context(), []byte("{}")); err != nil || have.version == "" {
		t.Errorf("the renewed token: %+v, %v", have, err)
	}
	// Another authority than the server's.
	write(t, filepath.Join(dir, "ca.crt"), authority(t))
	before := api.Patches()
	if _, err := p.patch(t.Context(), []byte("{}")); err == nil || !strings.Contains(err.Error(), "unknown authority") || api.Patches() != before {
		t.Errorf("a server of an unknown authority: %v", err)
	}
}

// authority is a certificate that no server has.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// A server that takes a request and says nothing is given up, and asked again.
func TestSilence(t *testing.T) {
	api := kubeapi.New("shop", "orders-0", "first")
	var asked atomic.Int32
	api.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if asked.Add(1) > 2 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body) // only so is the end of the connection seen
		<-r.Context().Done()
		return true
	}
	address, dir := served(t, api)
	p, err := newPod("orders-0", address, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if p.deadline != deadline {
		t.Errorf("the deadline is %v", p.deadline)
	}
	p.deadline = time.Second
	p.Set(true, 7)
	stop := start(t, p)
	await(t, "a third request", func() bool { return asked.Load() > 2 })
	await(t, "a label", func() bool { l, _ := shownBy(api); return l == Primary })
	stop()
	wantShown(t, api, Primary, "7")
}

func TestNotAPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := New("orders-0", nil); err == nil || !strings.Contains(err.Error(), "this is not a pod") {
		t.Errorf("outside of a cluster: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	dir := t.TempDir()
	if _, err := newPod("orders-0", "127.0.0.1:1", dir, nil); err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken") {
		t.Errorf("without an account: %v", err)
	}
	for name, valid := range map[string]bool{"orders-0": true, "a.b": true, "": false, "Orders": false, "a/b": false, "-a": false, "a-": false, strings.Repeat("a", 254): false} {
		if err := ValidateName(name); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
