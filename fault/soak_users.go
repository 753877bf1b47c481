//go:build linux

package fault

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// SoakReceiver takes the messages of a queue, and remembers of each key only how far it came.
type SoakReceiver struct {
	URL string

	mu      sync.Mutex
	last    map[string]int
	wrong   []Violation
	again   int
	refuses atomic.Bool
}

func newSoakReceiver(tb testing.TB) *SoakReceiver {
	r := &SoakReceiver{last: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var key string
		var n int
		_, err := fmt.Fscan(request.Body, &key, &n)
		switch {
		case r.refuses.Load():
			http.Error(w, "not now", http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, "KEY NUMBER is wanted", http.StatusBadRequest)
		default:
			r.take(key, n)
		}
	}))
	tb.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

func (r *SoakReceiver) take(key string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch last := r.last[key]; {
	case n <= last:
		r.again++
		return
	case n > last+1:
		r.wrong = append(r.wrong, Violation{Order, key, fmt.Sprintf("message %d came after %d", n, last)})
	}
	r.last[key] = n
}

// Refuse has it answer 503, or take what comes again.
func (r *SoakReceiver) Refuse(yes bool) { r.refuses.Store(yes) }

// SoakUsers use all parts of a [Soak] at once, at an even rate, each at whichever server answers.
type SoakUsers struct {
	Soak *Soak
	Seed uint64

	running sync.WaitGroup
	stop    context.CancelFunc
	over    context.Context

	beats beatLog

	mu     sync.Mutex
	did    map[string]int // what was answered well, by kind
	failed map[string]int
	stored map[string]int     // number of each key's last message that a server says it has
	quiet  int                // outages of sources that every sink was told of, beginning and end
	values map[[2]string]bool // keys of the cache, and what was given for them
	alarms MonitorVerdict     // once all was well
}

const (
	soakKeys   = 12
	soakSteady = 10
	soakCached = 50
)

// Start starts them.
func (u *SoakUsers) Start() {
	u.did, u.failed, u.stored, u.values = map[string]int{}, map[string]int{}, map[string]int{}, map[[2]string]bool{}
	u.over, u.stop = context.WithCancel(context.Background())
	for i := range soakKeys {
		u.every(time.Second, func(random *rand.Rand) { u.enqueue(random, fmt.Sprintf("key%d", i)) })
	}
	for i := range soakSteady {
		u.every(soakCheck, func(random *rand.Rand) { u.beat(random, steadyName(i)) })
	}
	u.running.Go(u.sicken)
	for range 4 {
		u.every(500*time.Millisecond, u.fetch)
	}
	u.every(200*time.Millisecond, u.write)
	for _, path := range []string{"/v1/overview", "/metrics", "/v1/history", "/v1/jobs/j/runs", "/v1/queues/q/messages", "/v1/sources", "/"} {
		u.every(5*time.Second, func(random *rand.Rand) { u.ask(random, "page", "GET", path, "") })
	}
	u.every(time.Second, u.follow)
}

// Stop ends them, and waits until they have.
func (u *SoakUsers) Stop() { u.stop(); u.running.Wait() }

// every does something again and again, with a jitter of a fifth, until the users are stopped.
func (u *SoakUsers) every(period time.Duration, do func(*rand.Rand)) {
	u.Seed++
	random := rand.New(rand.NewPCG(u.Seed, 12))
	u.running.Go(func() {
		for u.pass(period*4/5 + time.Duration(random.Int64N(int64(period)*2/5))) {
			do(random)
		}
	})
}

// pass waits, and reports false once the users are stopped.
func (u *SoakUsers) pass(d time.Duration) bool {
	select {
	case <-u.over.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (u *SoakUsers) count(kind string, well bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if well {
		u.did[kind]++
	} else {
		u.failed[kind]++
	}
	return well
}

// A user waits so long for a server, and then asks another: a sender of heartbeats must not be late itself.
const (
	soakWaits = 15 * time.Second
	soakBeats = time.Second
)

// ask asks any server, then the others.
func (u *SoakUsers) ask(random *rand.Rand, kind, method, path, body string) (answer string, well bool) {
	for _, i := range random.Perm(len(u.Soak.Servers)) {
		var status int
		if status, answer = u.Soak.Servers[i].Ask(soakWaits, method, path, body); status >= 200 && status < 300 {
			return answer, u.count(kind, true)
		}
	}
	return answer, u.count(kind, false)
}

// enqueue stores the next message of a key, and tries again with the same one until a server has it.
func (u *SoakUsers) enqueue(random *rand.Rand, key string) {
	u.mu.Lock()
	n := u.stored[key] + 1
	u.mu.Unlock()
	if _, well := u.ask(random, "enqueue", "POST", fmt.Sprintf("/v1/queues/q/messages?key=%s&id=%s-%d", key, key, n), fmt.Sprintf("%s %d", key, n)); well {
		u.mu.Lock()
		u.stored[key] = n
		u.mu.Unlock()
	}
}

// beat asks one server after the other. Each attempt is remembered: one that was given up may still be stored.
func (u *SoakUsers) beat(random *rand.Rand, source string) (well bool) {
	for _, i := range random.Perm(len(u.Soak.Servers)) {
		if u.beats.send(source, func() bool {
			status, _ := u.Soak.Servers[i].Ask(soakBeats, "POST", "/v1/ping/hb/"+source, "")
			return status >= 200 && status < 300
		}) {
			return u.count("heartbeat", true)
		}
	}
	return u.count("heartbeat", false)
}

func steadyName(i int) string { return fmt.Sprintf("steady%d", i) }

// sicken has a source beat for a while, fall silent until the sink is told, and beat until that is told, again and again.
func (u *SoakUsers) sicken() {
	random := rand.New(rand.NewPCG(u.Seed, 13))
	for {
		for _, down := range []bool{true, false} {
			known := false // to a server: of a source that none has heard of, no sink is told
			for begun := since(); u.Soak.Sink.Stands("sick") != down || since() < begun+10*time.Second; {
				if !down || !known || since() < begun+5*time.Second {
					known = u.beat(random, "sick") || known
				}
				if !u.pass(soakCheck) {
					return
				}
			}
		}
		u.mu.Lock()
		u.quiet++
		u.mu.Unlock()
	}
}

func (u *SoakUsers) outages() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.quiet
}

func (u *SoakUsers) fetch(random *rand.Rand) {
	key := fmt.Sprintf("k%d", random.IntN(soakCached))
	if value, well := u.ask(random, "cache", "GET", "/v1/cache/"+key+"?wait=10s", ""); well {
		u.mu.Lock()
		u.values[[2]string{key, value}] = true
		u.mu.Unlock()
	}
}

// write writes to the primary of the shard. That it is still there in the end is not judged: a primary alone may have acknowledged it.
func (u *SoakUsers) write(random *rand.Rand) {
	answer, well := u.ask(random, "primary of the shard", "GET", "/v1/shards/s/primary", "")
	var primary struct{ Address string }
	if !well || json.Unmarshal([]byte(answer), &primary) != nil {
		return
	}
	node, err := dialNode(primary.Address)
	if err == nil {
		defer node.Close()
		_ = node.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = node.do("INCR", "written")
	}
	u.count("write to the shard", err == nil)
}

// follow reads the events of a server for a while, as a page does, and goes.
func (u *SoakUsers) follow(random *rand.Rand) {
	ctx, cancel := context.WithTimeout(u.over, time.Duration(random.Int64N(int64(20*time.Second))))
	defer cancel()
	one := u.Soak.Servers[random.IntN(len(u.Soak.Servers))]
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+one.listen+"/v1/events", nil)
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		u.count("events", false)
		return
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
	}
	u.count("events", response.StatusCode == http.StatusOK)
}
