package front_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/dispatch/front"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
)

// beside is a front before a ledger that has the batches of the front already.
func beside(t *testing.T) (ledger, before *httptest.Server) {
	t.Helper()
	ledger = httptest.NewServer(&targettest.Sawtooth{})
	t.Cleanup(ledger.Close)
	at, err := url.Parse(ledger.URL)
	if err != nil {
		t.Fatal(err)
	}
	h, err := front.New(front.Config{Admin: newAdmin(), Queue: "ledger", Reads: at})
	if err != nil {
		t.Fatal(err)
	}
	before = httptest.NewServer(h)
	t.Cleanup(before.Close)
	return ledger, before
}

// exchange sends one request as it is, and returns the answer and its body.
func exchange(t *testing.T, at *httptest.Server, method, path, kind, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, at.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "ledger.example:8008"
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

// TestAgreesWithTheLedger sends the same to a front and to the ledger's own API: status, code, link and Allow agree.
func TestAgreesWithTheLedger(t *testing.T) {
	ledger, before := beside(t)
	s := signer()
	id, list := s.One("1", "payload")
	other, _ := s.One("2", "payload")
	_, forged := s.Make(targettest.Spec{Nonce: "3", Payloads: []string{"payload"}, Forged: true})
	const ids = "application/json"
	for _, c := range []struct{ method, path, kind, body string }{
		{"POST", "/batches", octets, string(list)},
		{"POST", "/batches?service_id=", octets, string(list)},
		{"POST", "/batches", octets, ""},
		{"POST", "/batches", "text/plain", string(list)},
		{"POST", "/batches", octets, string(list) + string(targettest.List(forged))},
		{"POST", "/batches", octets, strings.ReplaceAll(string(list), "payload", "PAYLOAD")},
		{"GET", "/batch_statuses", "", ""},
		{"GET", "/batch_statuses?id=", "", ""},
		{"GET", "/batch_statuses?id=abc", "", ""},
		{"GET", "/batch_statuses?id=" + other + "&zz=a%20b", "", ""},
		{"GET", "/batch_statuses?id=" + other + "," + other, "", ""},
		{"GET", "/batch_statuses?id=" + strings.Repeat(other+",", 19) + other, "", ""},
		{"POST", "/batch_statuses", ids, `["` + other + `","` + other + `"]`},
		{"POST", "/batch_statuses", "text/plain", `["` + other + `"]`},
		{"POST", "/batch_statuses", ids, `[null]`},
		{"POST", "/batch_statuses", ids, `[]`},
		{"POST", "/batch_statuses", ids, `{"id":1}`},
		{"PUT", "/batches", "", ""},
		{"DELETE", "/batch_statuses", "", ""},
		{"POST", "/blocks", octets, ""},
		{"GET", "/batches", "", ""},
		{"GET", "/batches/" + id, "", ""},
		{"GET", "/batches/" + other, "", ""},
		{"GET", "/blocks?limit=1", "", ""},
		{"GET", "/state?address=1cf126", "", ""},
		{"GET", "/transactions", "", ""},
		{"GET", "/peers", "", ""},
		{"HEAD", "/status", "", ""},
		{"GET", "/nothing", "", ""},
	} {
		type said struct {
			Error struct{ Code int }
			Link  string
			Data  any
		}
		read := func(at *httptest.Server) (answer *http.Response, s said) {
			answer, text := exchange(t, at, c.method, c.path, c.kind, c.body)
			_ = json.Unmarshal([]byte(text), &s)
			if c.method != "HEAD" && answer.Header.Get("Content-Length") != strconv.Itoa(len(text)) {
				t.Errorf("%s %.80s: Content-Length %q of %d bytes", c.method, c.path, answer.Header.Get("Content-Length"), len(text))
			}
			if c.method == "POST" && c.path == "/batches" && answer.StatusCode == 202 {
				s.Data = nil
			}
			return answer, s
		}
		want, is := read(ledger)
		got, has := read(before)
		if got.StatusCode != want.StatusCode || has.Error.Code != is.Error.Code || has.Link != is.Link ||
			got.Header.Get("Allow") != want.Header.Get("Allow") || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") {
			t.Errorf("%s %.80s: the front says %d %+v, %q; the ledger %d %+v, %q",
				c.method, c.path, got.StatusCode, has, got.Header, want.StatusCode, is, want.Header)
		}
	}
}

// TestReadsWithoutALedger: the ledger's API does not answer, or there is none.
func TestReadsWithoutALedger(t *testing.T) {
	ledger, before := beside(t)
	ledger.Close()
	answer, text := exchange(t, before, "GET", "/blocks", "", "")
	expectFault(t, call(newFront(t, newAdmin(), front.Sawtooth, 0), "GET", "/batch_statuses", "", nil), 66)
	if answer.StatusCode != 503 || !strings.Contains(text, `"code": 18`) || strings.Contains(text, ledger.URL) {
		t.Errorf("%d %s", answer.StatusCode, text)
	}
	if got := call(newFront(t, newAdmin(), front.Sawtooth, 0), "GET", "/blocks", "", nil); got.Status != 404 {
		t.Errorf("%+v", got)
	}
	if got := call(newFront(t, newAdmin(), front.Grid, 0), "GET", "/batches", "", nil); got.Status != 405 {
		t.Errorf("Grid has no GET /batches: %+v", got)
	}
}
