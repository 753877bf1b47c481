package front

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// gridDialect is Grid's API. Its statuses are spelled as the ledger behind it
// spells them.
type gridDialect struct{ splinter bool }

func (gridDialect) listType(string) error { return nil }

// wait: the longest unless it is said, "false" for none.
func (gridDialect) wait(query url.Values) (time.Duration, error) {
	asked := query.Get("wait")
	switch {
	case !query.Has("wait"):
		return longestWait, nil
	case asked == "false":
		return 0, nil
	}
	seconds, err := strconv.ParseUint(asked, 10, 32)
	if err != nil {
		return 0, faultf(faultQuery, "wait is %.40q; it can be false or a number of seconds", asked)
	}
	return min(time.Duration(seconds)*time.Second, longestWait), nil
}

func (d gridDialect) isUndecided(s word) bool {
	return s == pending || s == valid || d.splinter && s == unknown
}

const gridType = "application/json"

func (d gridDialect) submitted(w http.ResponseWriter, r *http.Request, ids []string) {
	answer := struct {
		Link string `json:"link"`
	}{origin(r) + "/batch_statuses?id=" + strings.Join(ids, ",")}
	write(w, gridType, http.StatusOK, encode(answer, ""))
}

type gridStatus struct {
	ID      string       `json:"id"`
	Invalid []gridReason `json:"invalid_transactions"`
	Status  string       `json:"status"`
}

type gridReason struct {
	ID      string `json:"id"`
	Message string `json:"message"`
	Data    string `json:"extended_data"`
}

func (d gridDialect) statuses(w http.ResponseWriter, r *http.Request, found []status) {
	answer := struct {
		Data []gridStatus `json:"data"`
		Link string       `json:"link"`
	}{make([]gridStatus, len(found)), origin(r) + r.URL.Path + "?" + r.URL.RawQuery}
	for i, s := range found {
		entry := gridStatus{ID: s.id, Status: d.spell(s.word), Invalid: []gridReason{}}
		for _, reason := range s.reasons {
			entry.Invalid = append(entry.Invalid, gridReason{ID: reason.Transaction, Message: reason.Message})
		}
		answer.Data[i] = entry
	}
	write(w, gridType, http.StatusOK, encode(answer, ""))
}

func (d gridDialect) spell(s word) string {
	if d.splinter {
		return string(s[:1]) + strings.ToLower(string(s[1:]))
	}
	if s == valid {
		s = pending
	}
	return string(s)
}

func (gridDialect) fail(w http.ResponseWriter, f fault) {
	status := http.StatusBadRequest
	switch f.kind {
	case faultInternal:
		status = http.StatusInternalServerError
	case faultLarge:
		status = http.StatusRequestEntityTooLarge
	case faultBusy, faultNotReady, faultUnknown, faultStore:
		status = http.StatusServiceUnavailable
	}
	answer := struct {
		Status  int    `json:"status_code"`
		Message string `json:"message"`
	}{status, f.detail}
	write(w, gridType, status, encode(answer, ""))
}
