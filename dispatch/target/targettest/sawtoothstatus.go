package targettest

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/internal/sawtooth"
)

func (s *Sawtooth) statuses(w http.ResponseWriter, r *http.Request, f Fault) {
	ids, ok := s.askedIDs(w, r)
	if !ok {
		return
	}
	if slices.ContainsFunc(ids, func(id string) bool { return !sawtooth.ValidID(id) }) {
		sawtoothError(w, 400, 60, "Invalid Resource Id")
		return
	}
	data := s.status(ids)
	if f.strike(w, r, http.StatusOK) {
		return
	}
	out := map[string]any{"data": data}
	if r.Method == http.MethodGet {
		out["link"] = "http://" + r.Host + "/batch_statuses?" + r.URL.RawQuery
	}
	writePretty(w, 200, out)
}

func (s *Sawtooth) askedIDs(w http.ResponseWriter, r *http.Request) (ids []string, ok bool) {
	if r.Method == http.MethodGet {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil || !query.Has("id") {
			sawtoothError(w, 400, 66, "Id Query Invalid or Missing")
			return nil, false
		}
		return strings.Split(query.Get("id"), ","), true
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Type") == "" || !json.Valid(body) {
		sawtoothCrash(w) // it never expected that
		return nil, false
	}
	if r.Header.Get("Content-Type") != "application/json" {
		sawtoothError(w, 400, 43, "Wrong Content Type")
		return nil, false
	}
	var given []*string
	if err := json.Unmarshal(body, &given); err != nil || len(given) == 0 || slices.Contains(given, nil) {
		sawtoothError(w, 400, 46, "Bad Status Request")
		return nil, false
	}
	for _, id := range given {
		ids = append(ids, *id)
	}
	return ids, true
}

// invalidEntries is how often the transaction that failed is named: it was seen up to 5 times.
const invalidEntries = 5

func (s *Sawtooth) status(ids []string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var data []map[string]any
	for _, id := range ids { // one that is asked for twice is answered twice
		entry := map[string]any{"id": id, "status": "UNKNOWN", "invalid_transactions": []any{}}
		v, invalid := s.invalid[id]
		switch {
		case s.blocks[id]:
			entry["status"] = "COMMITTED"
		case invalid && s.now().Sub(v.at) < sawtoothForgets:
			entry["status"] = "INVALID"
			entry["invalid_transactions"] = slices.Repeat([]any{map[string]any{
				"id": v.txn, "message": v.message,
				"extended_data": base64.StdEncoding.EncodeToString([]byte("extended")),
			}}, invalidEntries)
		case s.stuck[id], slices.ContainsFunc(s.pending, func(h held) bool { return h.id == id }):
			entry["status"] = "PENDING"
		}
		data = append(data, entry)
	}
	return data
}

func sawtoothError(w http.ResponseWriter, status, code int, title string) {
	writePretty(w, status, map[string]any{"error": map[string]any{"code": code, "title": title, "message": title + "."}})
}

// sawtoothCrash is the answer when the REST API itself fails.
func sawtoothCrash(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, "<html><head><title>500 Internal Server Error</title></head><body><h1>500 Internal Server Error</h1></body></html>")
}

func sawtoothMethod(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
}

func writePretty(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
