package front

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

type sawtoothDialect struct{}

func (sawtoothDialect) listType(contentType string) error {
	if contentType != listType {
		return faultf(faultType, "a list of batches has the Content-Type application/octet-stream, without parameters")
	}
	return nil
}

// wait: seconds, "false" for none, and the longest for everything else.
func (sawtoothDialect) wait(query url.Values) (time.Duration, error) {
	asked := query.Get("wait")
	if !query.Has("wait") || strings.EqualFold(asked, "false") {
		return 0, nil
	}
	seconds, err := strconv.ParseUint(strings.TrimSpace(asked), 10, 32)
	if err != nil {
		return longestWait, nil
	}
	return min(time.Duration(seconds)*time.Second, longestWait), nil
}

func (sawtoothDialect) isUndecided(s word) bool { return s == pending || s == valid }

// link is the address of a resource here, with the query of the request and
// changes to it, sorted, as they are: not escaped again.
func (sawtoothDialect) link(r *http.Request, path string, changes map[string]string) string {
	query := map[string]string{}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if _, again := query[name]; name != "" && !again {
			query[name] = value
		}
	}
	maps.Copy(query, changes)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if query[name] != "" {
			name += "=" + query[name]
		}
		parts = append(parts, name)
	}
	out := origin(r) + forwarded(r, "Path") + path
	if len(parts) > 0 {
		out += "?" + strings.Join(parts, "&")
	}
	return out
}

const sawtoothType = "application/json; charset=utf-8"

func (d sawtoothDialect) submitted(w http.ResponseWriter, r *http.Request, ids []string) {
	answer := struct {
		Link string `json:"link"`
	}{d.link(r, "/batch_statuses", map[string]string{"id": strings.Join(ids, ",")})}
	write(w, sawtoothType, http.StatusAccepted, ascii(encode(answer, "  ")))
}

// Members are in the order of their names.
type sawtoothStatus struct {
	ID      string           `json:"id"`
	Invalid []sawtoothReason `json:"invalid_transactions"`
	Status  word             `json:"status"`
}

type sawtoothReason struct {
	ID      string `json:"id,omitempty"`
	Message string `json:"message,omitempty"`
}

func (d sawtoothDialect) statuses(w http.ResponseWriter, r *http.Request, found []status) {
	answer := struct {
		Data []sawtoothStatus `json:"data"`
		Link string           `json:"link,omitempty"`
	}{Data: make([]sawtoothStatus, len(found))}
	if r.Method != http.MethodPost {
		answer.Link = d.link(r, r.URL.Path, nil)
	}
	for i, s := range found {
		entry := sawtoothStatus{ID: s.id, Status: s.word, Invalid: []sawtoothReason{}}
		if s.word == valid {
			entry.Status = pending
		}
		for _, reason := range s.reasons {
			entry.Invalid = append(entry.Invalid, sawtoothReason{reason.Transaction, reason.Message})
		}
		answer.Data[i] = entry
	}
	write(w, sawtoothType, http.StatusOK, ascii(encode(answer, "  ")))
}

// sawtoothFault is how a fault is told in this dialect.
type sawtoothFault struct {
	status, code int
	title        string
}

// sawtoothFaults are those of all kinds but faultLarge, which has no code.
var sawtoothFaults = map[kind]sawtoothFault{
	faultInternal: {http.StatusInternalServerError, 10, "Internal error"},
	faultNotReady: {http.StatusServiceUnavailable, 15, "Not ready"},
	faultUnknown:  {http.StatusServiceUnavailable, 17, "No answer in time"},
	faultStore:    {http.StatusServiceUnavailable, 18, "Store not reachable"},
	faultBusy:     {http.StatusTooManyRequests, 31, "Too busy"},
	faultRefused:  {http.StatusBadRequest, 30, "Batches not acceptable"},
	faultQuery:    {http.StatusBadRequest, 30, "Batches not acceptable"},
	faultEmpty:    {http.StatusBadRequest, 34, "No batches"},
	faultProtobuf: {http.StatusBadRequest, 35, "Not a BatchList"},
	faultType:     {http.StatusBadRequest, 42, "Wrong content type"},
	faultIDType:   {http.StatusBadRequest, 43, "Wrong content type"},
	faultIDBody:   {http.StatusBadRequest, 46, "Not a list of ids"},
	faultID:       {http.StatusBadRequest, 60, "Not an id"},
	faultNoID:     {http.StatusBadRequest, 66, "No id"},
}

func (sawtoothDialect) fail(w http.ResponseWriter, f fault) {
	if f.kind == faultLarge {
		http.Error(w, f.detail, http.StatusRequestEntityTooLarge)
		return
	}
	type inner struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Title   string `json:"title"`
	}
	k := sawtoothFaults[f.kind]
	answer := struct {
		Error inner `json:"error"`
	}{inner{k.code, f.detail, k.title}}
	write(w, sawtoothType, k.status, ascii(encode(answer, "  ")))
}
