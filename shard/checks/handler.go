package checks

import (
	"encoding/json"
	"net/http"

	"github.com/understudy-ha/understudy/shard"
)

type handler struct {
	Config
}

// Handler answers on all paths that the package tells of.
func Handler(cfg Config) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := handler{cfg.withDefaults()}
	mux := http.NewServeMux()
	for path, r := range rules() {
		serve := h.check(r)
		mux.HandleFunc("GET "+path, serve) // and HEAD
		mux.HandleFunc("OPTIONS "+path, serve)
	}
	mux.HandleFunc("GET /patroni", h.answer(func(s shard.Status) any { return h.member(s) }))
	mux.HandleFunc("GET /cluster", h.answer(func(s shard.Status) any { return clusterOf(s.View) }))
	mux.HandleFunc("GET /status", h.answer(func(s shard.Status) any { return statusOf(s) }))
	mux.HandleFunc("POST /failsafe", h.failsafe)
	mux.HandleFunc("GET /history", h.answer(func(s shard.Status) any { return historyOf(s.View) }))
	if h.Metrics != nil {
		mux.Handle("GET /metrics", h.Metrics)
	}
	return mux, nil
}

// status of the agent, without what nobody may see.
func (h handler) status() shard.Status {
	s := h.Agent.Status()
	s.View.Row.Secret = ""
	return s
}

func (h handler) check(r rule) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		s := h.status()
		yes, err := r(s, req.URL.Query())
		code := http.StatusServiceUnavailable
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case yes:
			code = http.StatusOK
		}
		if req.Method != http.MethodGet {
			head(w)
			w.WriteHeader(code)
			return
		}
		write(w, code, h.member(s))
	}
}

func (h handler) answer(f func(shard.Status) any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, f(h.status())) }
}

func head(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
}

func write(w http.ResponseWriter, code int, body any) {
	head(w)
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "this cannot be shown", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}
