package intake

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// vesVersion is a version of the VES event listener. Its minor and patch numbers are in the headers of each answer.
type vesVersion struct{ major, minor, patch string }

// The versions that senders are found with. Their events differ in what no heartbeat needs.
var vesVersions = []vesVersion{{"7", "2", "1"}, {"5", "4", "1"}}

// vesRoutes are those of a VES collector, with and without a slash at the end.
func (h *HTTP) vesRoutes() (routes []Route) {
	for i, v := range vesVersions {
		handler := v.announce(h.serve(h.events, requestError))
		for _, path := range []string{"", "/eventBatch", "/{$}", "/eventBatch/{$}"} {
			routes = append(routes, Route{
				Method: http.MethodPost, Pattern: "/eventListener/v" + v.major + path, Body: MaxBody, Handler: handler,
				Hidden: i > 0 || path != "" && path != "/eventBatch",
			})
		}
	}
	other := func(http.ResponseWriter, *http.Request) error { return errListener }
	return append(routes, Route{Method: http.MethodPost, Pattern: "/eventListener/{rest...}", Body: MaxBody, Handler: h.answer(other, requestError), Hidden: true})
}

// announce puts the version into the headers of all answers. What a sender asks for in X-MinorVersion is not looked at: a
// heartbeat must not be lost for a number.
func (v vesVersion) announce(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-MinorVersion", v.minor)
		header.Set("X-PatchVersion", v.patch)
		header.Set("X-LatestVersion", fmt.Sprintf("%s.%s.%s", v.major, v.minor, v.patch))
		handler(w, r)
	}
}

// events answers as a VES collector does: 202 without a body. Of a batch it is
// enough that one event was taken; the others are among the rejected inputs.
func (h *HTTP) events(w http.ResponseWriter, r *http.Request, key *PingKey) error {
	return h.handleBody(w, r, key, func(_ *buffer, t tally) {
		taken := t.Accepted + t.other
		h.ignored.add(t.other, t.Unknown)
		if !h.cfg.RejectUnknown {
			taken += t.Unknown
		}
		if taken == 0 && len(t.Errors) > 0 {
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
