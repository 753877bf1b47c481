package intake

import (
	"encoding/json"
	"net/http"
)

// events answers as a VES collector does: 202 without a body. Of a batch it is
// enough that one event was taken; the others are among the dead letters.
func (h *HTTP) events(w http.ResponseWriter, r *http.Request, key *PingKey) error {
	return h.handleBody(w, r, key, func(_ *buffer, t tally) {
		if t.Accepted == 0 && len(t.Errors) > 0 {
			first := t.Errors[0]
			requestError(w, fault{status: http.StatusBadRequest, code: string(first.Cause), detail: string(first.Cause) + ": " + first.Detail})
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
}

type exception struct {
	ID   string `json:"messageId"`
	Text string `json:"text"`
}

// requestError answers with a fault as a VES collector does.
func requestError(w http.ResponseWriter, f fault) {
	kind, e := "ServiceException", exception{ID: "SVC0002", Text: f.detail}
	switch f.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind, e.ID = "PolicyException", "POL0001"
	case http.StatusRequestEntityTooLarge:
		kind, e.ID = "PolicyException", "POL9003"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		e.ID = "SVC1000"
	case http.StatusInternalServerError:
		e.ID = "SVC0001"
	}
	w.Header().Set("Content-Type", "application/json")
	f.head(w)
	_ = json.NewEncoder(w).Encode(map[string]map[string]exception{"requestError": {kind: e}})
}
