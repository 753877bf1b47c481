package demo

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/claim"
)

// names are the instances of the demonstration.
var names = [...]string{"anna", "ben", "clara"}

// What the instances are busy with.
const (
	roleName  = "billing"
	moreRole  = "demo-reports" // a role of two holders
	queueName = "orders"
	// CheckName is the check that the sources of the demonstration send heartbeats of.
	CheckName = "sensor"
	sinkName  = "demo"

	monitorRole = "monitor" // that servers with a monitor take by themselves
)

// missed is how many heartbeats a source of the demonstration may miss.
const missed = 5

// fleet are the instances: servers of their own, each with a file.
type fleet struct {
	d       *demo
	procs   []*process
	urls    []string         // of each, over HTTP
	clients []*client.Client // of each
}

// peer is where a peer of the cache is reached: by other peers, and by clients.
type peer struct{ url, api string }

// findAddresses finds addresses for the instances, and for the peers of the cache.
func (d *demo) findAddresses() error {
	n := len(names)
	free, err := d.ports.free(n + 2*(n+1))
	if err != nil {
		return err
	}
	d.hosts = free[:n]
	for i := range n + 1 {
		d.peers = append(d.peers, peer{url: "tcp://" + free[n+2*i], api: "tcp://" + free[n+2*i+1]})
	}
	return nil
}

func newFleet(d *demo) (*fleet, error) {
	f := &fleet{d: d}
	for i, name := range names {
		f.urls = append(f.urls, "http://"+d.hosts[i])
		c, err := client.New(client.Config{URL: f.urls[i]})
		if err != nil {
			return nil, err
		}
		f.clients = append(f.clients, c)
		file := filepath.Join(d.dir, name+".yaml")
		text, err := yaml.Marshal(d.instance(i))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
		f.procs = append(f.procs, &process{
			name: name, log: filepath.Join(d.dir, name+".log"), stop: syscall.SIGTERM,
			argv: []string{d.cfg.Self, "serve", "-c", file}, env: d.env(),
		})
	}
	return f, nil
}

// env is the environment of the processes: what stands in that of the demonstration is
// not for them, but for the store.
func (d *demo) env() []string {
	out := []string{"UNDERSTUDY_STORE=" + d.cfg.StoreURL}
	for _, line := range os.Environ() {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "UNDERSTUDY_") && name != "NOTIFY_SOCKET" && name != "WATCHDOG_USEC" && name != "WATCHDOG_PID" {
			out = append(out, line)
		}
	}
	return out
}

// mapping is a mapping of a configuration's file.
type mapping = map[string]any

// instance is the file of an instance.
func (d *demo) instance(i int) mapping {
	name, listen := names[i], d.hosts[i]
	t, w := d.cfg.Timing, d.windows()
	out := mapping{
		"name": name, "address": listen, "listen": listen,
		"interval": t.Interval.String(), "timeout": t.Timeout.String(),
		"roles": []mapping{{
			"role": roleName, "stop_grace": stopGrace(t).String(),
			"command": []string{"sh", "-c", "while :; do sleep 1; done"},
		}, {"role": moreRole, "holders": 2, "stop_grace": stopGrace(t).String()}},
		"cache": mapping{
			"url": d.peers[i].url, "api": d.peers[i].api, "peers": d.members(), "content_type": "text/plain",
			"announce_timeout": d.announceTimeout(),
			"origin":           mapping{"url": d.world.url + "/slow/" + name + "/{key}"},
		},
	}
	if !d.works {
		return out
	}
	first, second, submit := w.First.String(), w.Second.String(), d.submit().String()
	out["queues"] = []mapping{{
		"queue": queueName, "first_window": first, "second_window": second, "submit_timeout": submit,
		"webhook": mapping{
			"url": d.world.url + "/deliver", "status_url": d.world.url + "/status/{id}", "not_found_is_final": true,
			"headers": mapping{byHeader: name},
		},
	}}
	out["monitor"] = mapping{
		"first_window": first,
		"checks":       []mapping{{"check": CheckName, "interval": d.checkInterval().String(), "missed": missed}},
		"sinks": []mapping{{
			"sink": sinkName, "webhook": mapping{"url": d.world.url + "/alarm", "deduplicates": true},
			"first_window": first, "second_window": second, "submit_timeout": submit,
		}},
	}
	return out
}

func (d *demo) members() []mapping {
	var out []mapping
	for _, p := range d.peers {
		out = append(out, mapping{"url": p.url, "api": p.api})
	}
	return out
}

// pageSettings are the file of what the demonstration itself serves: it takes no role and delivers nothing, and
// its peer of the cache fetches nothing.
func (d *demo) pageSettings(listen string) ([]byte, error) {
	own := d.peers[len(d.peers)-1]
	return yaml.Marshal(mapping{
		"name": "page", "listen": listen,
		"interval": d.cfg.Timing.Interval.String(), "timeout": d.cfg.Timing.Timeout.String(),
		"cache": mapping{"url": own.url, "api": own.api, "peers": d.members(), "content_type": "text/plain", "announce_timeout": d.announceTimeout()},
	})
}

// windows are those of the queue; a message that was under way when its instance died is
// taken up after the second.
func (d *demo) windows() claim.Windows {
	first := max(d.cfg.Timing.Timeout, time.Second)
	return claim.Windows{First: first, Second: max(first, d.submit()+3*time.Second)}
}

// submit is how long a submission may take: as long as leaves the second window as it is, and 2 s at least.
func (d *demo) submit() time.Duration {
	return max(min(d.cfg.Timing.Timeout, 2*time.Second), d.cfg.Timing.Timeout-3*time.Second)
}

// announceTimeout is after how long of silence a peer of the cache is given up that fetches: a busy machine is not silent.
func (d *demo) announceTimeout() string { return max(5*time.Second, d.cfg.Timing.Timeout).String() }

// process is the process of an instance.
func (f *fleet) process(name string) *process {
	for _, p := range f.procs {
		if p.name == name {
			return p
		}
	}
	return nil
}

// isUp reports whether every instance runs, and answers that it is ready.
func (f *fleet) isUp(ctx context.Context) bool {
	for i, p := range f.procs {
		if p.running() == 0 || !answers(ctx, f.urls[i]+"/readyz") {
			return false
		}
	}
	return true
}
