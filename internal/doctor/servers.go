package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/attention"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// Servers asks running servers and peers how they are.
type Servers struct {
	servers []string
	token   string
	http    *http.Client
}

// NewServers takes the URLs of servers, and the token that they are shown; "" is none.
func NewServers(servers []string, token string) (*Servers, error) {
	q := &Servers{token: token, http: &http.Client{
		Timeout: 3 * time.Second,
		// A token is for the server that was named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for _, server := range servers {
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, usererr.Errorf("--server %q: use http://HOST:PORT or https://HOST:PORT", server)
		}
		q.servers = append(q.servers, strings.TrimSuffix(server, "/"))
	}
	return q, nil
}

// Ready asks whether they are ready, and nothing else.
func (q *Servers) Ready(ctx context.Context) (out []Finding) {
	for _, server := range q.servers {
		state, _ := q.isReady(ctx, server)
		out = append(out, state)
	}
	return out
}

// check asks how they are, and compares their versions.
func (q *Servers) check(ctx context.Context) (out []Finding) {
	versions := map[string][]string{}
	for _, server := range q.servers {
		state, agent := q.isReady(ctx, server)
		out = append(out, state)
		if state.Verdict == "bad" {
			continue
		}
		if v, err := q.version(ctx, server); err != nil {
			out = append(out, warn("server", "%s does not tell its version: %v", server, err).withAdvice("docs/operations.md#doctor", "give its token: --token-file"))
		} else {
			versions[v] = append(versions[v], server)
		}
		if !agent {
			out = append(out, q.cache(ctx, server)...)
		}
	}
	if len(versions) < 2 {
		return out
	}
	var list []string
	for v, servers := range versions {
		list = append(list, fmt.Sprintf("%s on %s", v, strings.Join(servers, ", ")))
	}
	slices.Sort(list)
	return append(out, warn("versions", "the servers run different versions: %s", strings.Join(list, "; ")).
		withAdvice("docs/backup.md#upgrades", "finish the upgrade"))
}

// isReady asks a server, or the agent of a shard, whether it is.
func (q *Servers) isReady(ctx context.Context, server string) (found Finding, agent bool) {
	text, status, err := q.get(ctx, server+"/readyz")
	if err == nil && status == http.StatusNotFound {
		agent = true
		text, status, err = q.get(ctx, server+"/readiness")
	}
	switch {
	case err != nil:
		found = bad("server", "%s does not answer: %v", server, err).withAdvice("docs/runbook.md#understudydown", "is it running, and is this its address?")
	case status == http.StatusServiceUnavailable:
		found = bad("server", "%s is not ready: %s", server, termtext.Line(text)).withAdvice("docs/runbook.md#understudystoredown", "see to the way from there to the store")
	case status != http.StatusOK:
		found = bad("server", "%s answers %d: %s", server, status, termtext.Line(text)).withAdvice("docs/runbook.md#understudydown", "is this the address of a server?")
	default:
		found = well("server", "%s is ready", server)
	}
	return found, agent
}

func (q *Servers) version(ctx context.Context, server string) (string, error) {
	text, status, err := q.get(ctx, server+"/metrics")
	if err != nil {
		return "", err
	}
	buildInfo := regexp.MustCompile(`(?m)^understudy_(?:agent_)?build_info\{[^}]*\bversion="([^"]*)"`)
	if m := buildInfo.FindStringSubmatch(text); status == http.StatusOK && m != nil {
		return m[1], nil
	}
	return "", fmt.Errorf("its /metrics answers %d", status)
}

// cache tells how the peer sees its cluster, if the server runs one.
func (q *Servers) cache(ctx context.Context, server string) []Finding {
	c, err := client.New(client.Config{URL: server, Token: q.token})
	if err != nil {
		return []Finding{bad("cache", "%s: %v", server, err).withAdvice("docs/cache.md", "use the address of its HTTP port")}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	v, err := c.CachePeers(ctx)
	var answer *client.Error
	switch {
	case errors.As(err, &answer) && (answer.Status == http.StatusNotFound || answer.Code == "no_cache"):
		return nil
	case err != nil:
		return []Finding{warn("cache", "%s does not tell how its peer is: %v", server, err).withAdvice("docs/operations.md#doctor", "give its token: --token-file")}
	}
	return judgePeer(v)
}

func judgePeer(v apitype.CacheCluster) (out []Finding) {
	if v.Member && !v.Partitioned {
		out = append(out, well("cache", "%s is a member, with %d others", v.Self, max(0, len(v.Peers)-1)))
	}
	return append(out, findings(attention.Cache(v))...)
}

// get asks for a page, of which it reads the beginning.
func (q *Servers) get(ctx context.Context, address string) (text string, status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", 0, err
	}
	if q.token != "" {
		r.Header.Set("Authorization", "Bearer "+q.token)
	}
	answer, err := q.http.Do(r)
	if err != nil {
		return "", 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4<<20))
	return string(body), answer.StatusCode, err
}
