//go:build linux

package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ClusterSeen is what a peer says of the cluster.
type ClusterSeen struct {
	Member      bool   `json:"member"`
	Partitioned bool   `json:"partitioned"`
	Abstaining  bool   `json:"abstaining"`
	Connected   int    `json:"connected"`
	Trouble     string `json:"trouble"`
	Peers       []struct {
		URL    string `json:"url"`
		Link   string `json:"link"`
		List   string `json:"list"`
		SkewMS *int64 `json:"skew_ms"`
	} `json:"peers"`
}

// Cluster asks the peer how the cluster is.
func (p *Peer) Cluster() (v ClusterSeen, err error) {
	_, body, _, err := p.ask("GET", "/v1/cache-peers", nil, 5*time.Second)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(body, &v)
}

// Metric reads one of the peer's metrics, its labels included in the name.
func (p *Peer) Metric(name string) float64 {
	p.peers.tb.Helper()
	_, body, _, err := p.ask("GET", "/metrics", nil, patience)
	if err != nil {
		p.peers.tb.Fatal(err)
	}
	for line := range bytes.Lines(body) {
		if rest, ok := strings.CutPrefix(string(line), "understudy_cache_"+name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				p.peers.tb.Fatal(err)
			}
			return n
		}
	}
	p.peers.tb.Fatalf("%s has no metric %s", p.Name, name)
	return 0
}

// noValue is an answer over HTTP that is no value.
type noValue struct {
	status int
	body   string
}

func (r *noValue) Error() string { return fmt.Sprintf("%d: %.200s", r.status, r.body) }

// Status of an answer over HTTP that was no value; 0 for another error.
func Status(err error) int {
	var r *noValue
	if errors.As(err, &r) {
		return r.status
	}
	return 0
}

func (p *Peer) ask(method, path string, content []byte, within time.Duration) (status int, body []byte, h http.Header, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.HTTP+path, bytes.NewReader(content))
	if err != nil {
		return 0, nil, nil, err
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if p.peers.token != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	r, err := p.peers.http.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer r.Body.Close()
	if body, err = io.ReadAll(r.Body); err == nil && r.StatusCode >= 300 {
		err = &noValue{r.StatusCode, string(body)}
	}
	return r.StatusCode, body, r.Header, err
}

// Get asks over HTTP; query is as of the route.
func (p *Peer) Get(key, query string, within time.Duration) Answer {
	a := Answer{Key: key, Peer: p.Name, Life: p.Life(), Asked: since()}
	_, body, h, err := p.ask("GET", fmt.Sprintf("/v1/cache/%s?wait=%v&%s", key, within, query), nil, within+patience)
	a.Got, a.Value, a.Err = since(), string(body), err
	a.Term, _ = strconv.ParseInt(h.Get("Understudy-Term"), 10, 64)
	if p.Life() != a.Life {
		a.Life = -1
	}
	return a
}

// Remove removes a key.
func (p *Peer) Remove(key string) (Taken, error) {
	c := p.peers
	lives := func() map[string]int {
		out := map[string]int{}
		for _, p := range c.all {
			out[p.Name] = p.Life()
		}
		return out
	}
	t := Taken{Key: key, Peer: p.Name, Begun: since(), Lives: lives()}
	_, body, _, err := p.ask("DELETE", "/v1/cache/"+key+"?wait=1s", nil, patience)
	t.Done = since()
	var said struct{ Confirmed, Of int }
	if err == nil {
		err = json.Unmarshal(body, &said)
	}
	t.All = err == nil && said.Confirmed == said.Of
	for name, life := range lives() {
		if t.Lives[name] != life {
			t.Lives[name] = -2
		}
	}
	return t, err
}
