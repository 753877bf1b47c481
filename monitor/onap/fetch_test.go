package onap_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor/onap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a stand-in for a Config Binding Service that knows one component.
type service struct {
	*httptest.Server
	asked  atomic.Int64
	answer atomic.Pointer[http.HandlerFunc] // instead of the configuration
}

func newService(t *testing.T, start func(*httptest.Server)) *service {
	s := &service{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /service_component/{name}", func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if h := s.answer.Load(); h != nil {
			(*h)(w, r)
			return
		}
		if r.PathValue("name") != "hb/site7" {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "no such key "+secret)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, config())
	})
	s.Server = httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

func (s *service) answers(h http.HandlerFunc) { s.answer.Store(&h) }

func (s *service) says(body string) {
	s.answers(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
}

func (s *service) host() string { return s.Listener.Addr().String() }

// rig is a fetcher, its environment and its log.
type rig struct {
	*onap.Fetcher
	env map[string]string
	log bytes.Buffer
}

func newRig(t *testing.T, env map[string]string, change func(*onap.FetcherConfig)) *rig {
	t.Helper()
	r := &rig{env: map[string]string{"HOSTNAME": "hb/site7", "CBS_CLIENT_CONFIG_PATH": filepath.Join(t.TempDir(), "none")}}
	maps.Copy(r.env, env)
	cfg := onap.FetcherConfig{
		Env: func(name string) (string, bool) {
			value, ok := r.env[name]
			return value, ok
		},
		Decode: yaml.Unmarshal, Backoff: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.Fetcher, err = onap.NewFetcher(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// fetches checks what is fetched: the origin, or a part of the error.
func (r *rig) fetches(t *testing.T, origin, wrong string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, from, err := r.Fetch(ctx)
	switch {
	case wrong == "" && (err != nil || from != origin || c.Monitor.Origin != origin || len(c.Monitor.Checks) != 1):
		t.Errorf("from %q: %+v, %v; want it from %q", from, c, err, origin)
	case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong) || len(c.Monitor.Checks) != 0):
		t.Errorf("from %q: %v, want %q", from, err, wrong)
	case wrong != "" && !errors.Is(err, lease.ErrInvalid) && !errors.Is(err, onap.ErrNoConfig):
		t.Errorf("%v wraps neither ErrInvalid nor ErrNoConfig", err)
	}
	if err != nil && strings.Contains(err.Error(), secret) || strings.Contains(r.log.String(), secret) {
		t.Errorf("told: %v\nlogged: %s", err, r.log.String())
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFetchService(t *testing.T) {
	s := newService(t, (*httptest.Server).Start)
	origin := "cbs:" + s.URL + "/service_component/hb%2Fsite7"
	env := map[string]string{"CONFIG_BINDING_SERVICE": s.host()}
	newRig(t, env, nil).fetches(t, origin, "")

	t.Run("not at first", func(t *testing.T) {
		for name, wrong := range map[string]http.HandlerFunc{
			"500":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, http.StatusInternalServerError) },
			"429":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
			"gone": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"cut": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, "{")
			},
		} {
			before := s.asked.Load()
			s.answers(func(w http.ResponseWriter, r *http.Request) {
				if s.asked.Load() >= before+3 {
					s.answer.Store(nil)
				}
				wrong(w, r)
			})
			newRig(t, env, nil).fetches(t, origin, "")
			if asked := s.asked.Load() - before; asked != 4 {
				t.Errorf("%s: asked %d times", name, asked)
			}
		}
	})
	t.Run("never", func(t *testing.T) {
		for code, times := range map[int]int64{500: 4, 503: 4, 404: 1, 400: 1, 302: 1} {
			before := s.asked.Load()
			s.answers(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/service_component/"+secret)
				w.WriteHeader(code)
			})
			wrong := fmt.Sprintf("it answered %d", code)
			if code == http.StatusNotFound {
				wrong = `knows no component "hb/site7"`
			}
			newRig(t, env, nil).fetches(t, "", wrong)
			if asked := s.asked.Load() - before; asked != times {
				t.Errorf("%d: asked %d times", code, asked)
			}
		}
	})
	s.answer.Store(nil)
	r := newRig(t, env, nil)
	r.env["HOSTNAME"] = ""
	r.fetches(t, "", "HOSTNAME")
	r = newRig(t, map[string]string{"CONFIG_BINDING_SERVICE": "%zz"}, nil)
	r.fetches(t, "", "no configuration")
	newRig(t, nil, nil).fetches(t, "", "no configuration")
}

func TestFetchTLS(t *testing.T) {
	s := newService(t, (*httptest.Server).StartTLS)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	env := map[string]string{"CONFIG_BINDING_SERVICE": s.host(), "DCAE_CA_CERTPATH": write(t, string(ca))}
	r := newRig(t, env, nil)
	r.fetches(t, "cbs:"+s.URL+"/service_component/hb%2Fsite7", "")
	r.env["DCAE_CA_CERTPATH"] = write(t, secret)
	r.fetches(t, "", "no certificate in PEM form")
	r.env["DCAE_CA_CERTPATH"] = filepath.Join(t.TempDir(), "none")
	r.fetches(t, "", "DCAE_CA_CERTPATH")

	other := newService(t, (*httptest.Server).Start) // speaks no TLS
	r = newRig(t, env, nil)
	r.env["CONFIG_BINDING_SERVICE"] = other.host()
	r.fetches(t, "", "no configuration")
}

func TestFetchFiles(t *testing.T) {
	s := newService(t, (*httptest.Server).Start)
	fallback := write(t, config())
	// YAML is more than JSON.
	local := write(t, "# local\n"+config())
	env := map[string]string{"CONFIG_BINDING_SERVICE": s.host(), "CBS_CLIENT_CONFIG_PATH": local, "CBS_HTBT_JSON": fallback}
	newRig(t, env, nil).fetches(t, "file:"+local, "")
	if s.asked.Load() != 0 {
		t.Error("the service was asked although there is a local file")
	}

	env["CBS_CLIENT_CONFIG_PATH"] = write(t, "pg_passwd: *"+secret)
	r := newRig(t, env, nil)
	r.fetches(t, "cbs:"+s.URL+"/service_component/hb%2Fsite7", "")
	if !strings.Contains(r.log.String(), "cannot be read") {
		t.Errorf("nobody is told that the local file is broken: %s", r.log.String())
	}

	s.Close()
	newRig(t, env, nil).fetches(t, "file:"+fallback, "")
	env["CBS_HTBT_JSON"] = write(t, `{"pg_passwd": "`+secret)
	newRig(t, env, nil).fetches(t, "", "is not valid JSON")
	env["CBS_HTBT_JSON"] = filepath.Join(t.TempDir(), "none")
	newRig(t, env, nil).fetches(t, "", "no such file")

	only := func(cfg *onap.FetcherConfig) { cfg.File = fallback }
	newRig(t, env, only).fetches(t, "file:"+fallback, "")
	only = func(cfg *onap.FetcherConfig) { cfg.File, cfg.MaxBytes = fallback, 100 }
	newRig(t, env, only).fetches(t, "", "more than 100 bytes")
}

// TestFetchNoLesser: while a better source is away, a lesser one does not replace
// what it gave.
func TestFetchNoLesser(t *testing.T) {
	s := newService(t, (*httptest.Server).Start)
	fallback := write(t, config())
	env := map[string]string{"CONFIG_BINDING_SERVICE": s.host(), "CBS_HTBT_JSON": fallback}
	origin := "cbs:" + s.URL + "/service_component/hb%2Fsite7"
	r := newRig(t, env, nil)
	r.fetches(t, origin, "")
	s.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	r.fetches(t, "", "a better one has answered before")
	newRig(t, env, func(cfg *onap.FetcherConfig) { cfg.Last = origin }).fetches(t, "", "a better one has answered before")
	newRig(t, env, nil).fetches(t, "file:"+fallback, "")
	s.answer.Store(nil)
	r.fetches(t, origin, "")
}

// TestD18BrokenAnswer: an answer that is empty, half or nonsense is an error, and
// not the fallback file's chance.
func TestD18BrokenAnswer(t *testing.T) {
	s := newService(t, (*httptest.Server).Start)
	env := map[string]string{"CONFIG_BINDING_SERVICE": s.host(), "CBS_HTBT_JSON": write(t, config())}
	half := config()[:len(config())/2]
	for _, body := range []string{"", "{}", "null", "[]", half, "<html>", with("heartbeat_config", `"{}"`), strings.Repeat(" ", 2000) + config()} {
		s.says(body)
		r := newRig(t, env, func(cfg *onap.FetcherConfig) { cfg.MaxBytes = 2000 })
		c, _, err := r.Fetch(t.Context())
		if !errors.Is(err, lease.ErrInvalid) || len(c.Monitor.Checks) != 0 {
			t.Errorf("%.40q: %+v, %v", body, c, err)
		}
	}
}

// TestD06HangingService: no request waits for ever, nor does a caller that has gone.
func TestD06HangingService(t *testing.T) {
	s := newService(t, (*httptest.Server).Start)
	entered := make(chan struct{}, 10)
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // the head comes, the body does not
		entered <- struct{}{}
		<-r.Context().Done()
	})
	env := map[string]string{"CONFIG_BINDING_SERVICE": s.host()}
	short := func(cfg *onap.FetcherConfig) { cfg.Timeout, cfg.Attempts = 100*time.Millisecond, 2 }
	newRig(t, env, short).fetches(t, "", "no configuration")

	ctx, cancel := context.WithCancel(t.Context())
	for len(entered) > 0 {
		<-entered
	}
	go func() {
		<-entered
		cancel()
	}()
	if _, _, err := newRig(t, env, nil).Fetch(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller has gone: %v", err)
	}
}

func TestFetcherConfig(t *testing.T) {
	if _, err := onap.NewFetcher(onap.FetcherConfig{Timeout: -1}); !errors.Is(err, lease.ErrInvalid) {
		t.Error(err)
	}
	if _, err := onap.NewFetcher(onap.FetcherConfig{}); err != nil {
		t.Error(err)
	}
}

// TestFetchNamesTheEnvironment: an operator who forgot a variable is told which.
func TestFetchNamesTheEnvironment(t *testing.T) {
	newRig(t, map[string]string{"HOSTNAME": ""}, nil).fetches(t, "", "not set in the environment: CONFIG_BINDING_SERVICE and HOSTNAME, nor CBS_HTBT_JSON")
	newRig(t, nil, nil).fetches(t, "", "not set in the environment: CONFIG_BINDING_SERVICE, nor")
	newRig(t, map[string]string{"CONFIG_BINDING_SERVICE": "127.0.0.1:1", "HOSTNAME": ""}, nil).fetches(t, "", "environment: HOSTNAME, nor")
}

// TestFetchWarnsOnce: a service that stays away is one line, and one more when it fails again.
func TestFetchWarnsOnce(t *testing.T) {
	s := newService(t, (*httptest.Server).Start)
	r := newRig(t, map[string]string{"CONFIG_BINDING_SERVICE": s.host()}, nil)
	away := func() { s.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }) }
	for range 3 {
		away()
		for range 3 {
			r.fetches(t, "", "it knows no component")
		}
		s.says(config())
		r.fetches(t, "cbs:"+s.URL+"/service_component/hb%2Fsite7", "")
	}
	if n := strings.Count(r.log.String(), "no configuration from here"); n != 3 {
		t.Errorf("%d lines for three outages:\n%s", n, r.log.String())
	}
}
