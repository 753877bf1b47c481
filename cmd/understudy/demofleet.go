package main

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

// demoNames are the instances of the demonstration.
var demoNames = [...]string{"anna", "ben", "clara"}

// What the instances are busy with.
const (
	demoRoleName  = "billing"
	demoMoreName  = "reports" // a role of two holders
	demoQueueName = "orders"
	demoEventName = "sensor"
	demoSinkName  = "demo"
)

// demoMissed is how many beats a source of the demonstration may miss.
const demoMissed = 5

// demoFleet are the instances: servers of their own, each with a file.
type demoFleet struct {
	d       *demo
	procs   []*demoProc
	urls    []string         // of each, over HTTP
	clients []*client.Client // of each
}

// places finds addresses for the instances, and for the peers of the cache.
func (d *demo) places() error {
	n := len(demoNames)
	free, err := freeAddresses(n + 2*(n+1))
	if err != nil {
		return err
	}
	d.hosts = free[:n]
	for i := range n + 1 {
		d.peers = append(d.peers, cachePeerConfig{URL: "tcp://" + free[n+2*i], API: "tcp://" + free[n+2*i+1]})
	}
	return nil
}

func newDemoFleet(d *demo) (*demoFleet, error) {
	f := &demoFleet{d: d}
	for i, name := range demoNames {
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
		f.procs = append(f.procs, &demoProc{
			name: name, log: filepath.Join(d.dir, name+".log"), stop: syscall.SIGTERM,
			argv: []string{d.self, "serve", "-c", file}, env: d.env(),
		})
	}
	return f, nil
}

// env is the environment of the processes: what stands in that of the demonstration is
// not for them, but for the store.
func (d *demo) env() []string {
	out := []string{"UNDERSTUDY_STORE=" + d.app.storeURL}
	for _, line := range os.Environ() {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "UNDERSTUDY_") && name != "NOTIFY_SOCKET" && name != "WATCHDOG_USEC" && name != "WATCHDOG_PID" {
			out = append(out, line)
		}
	}
	return out
}

// settings is a mapping of a configuration's file.
type settings = map[string]any

// instance is the file of an instance.
func (d *demo) instance(i int) settings {
	name, listen := demoNames[i], d.hosts[i]
	t, w := d.flags.timing, d.windows()
	out := settings{
		"name": name, "address": listen, "listen": listen,
		"interval": t.Interval.String(), "timeout": t.Timeout.String(),
		"roles": []settings{{
			"role": demoRoleName, "stop_grace": demoGrace(t).String(),
			"command": []string{"sh", "-c", "while :; do sleep 1; done"},
		}, {"role": demoMoreName, "holders": 2, "stop_grace": demoGrace(t).String()}},
		"cache": settings{
			"url": d.peers[i].URL, "api": d.peers[i].API, "peers": d.members(), "content_type": "text/plain",
			"announce_timeout": "5s", // a busy machine is not silent
			"origin":           settings{"url": d.world.url + "/slow/" + name + "/{key}"},
		},
	}
	if !d.works {
		return out
	}
	first, second, submit := w.First.String(), w.Second.String(), d.submit().String()
	out["queues"] = []settings{{
		"queue": demoQueueName, "first_window": first, "second_window": second, "submit_timeout": submit,
		"webhook": settings{
			"url": d.world.url + "/deliver", "status_url": d.world.url + "/status/{id}", "remembers": true,
			"headers": settings{demoBy: name},
		},
	}}
	out["monitor"] = settings{
		"first_window": first,
		"events":       []settings{{"event": demoEventName, "interval": d.beats().String(), "missed": demoMissed}},
		"sinks": []settings{{
			"sink": demoSinkName, "webhook": settings{"url": d.world.url + "/alarm", "recognises": true},
			"first_window": first, "second_window": second, "submit_timeout": submit,
		}},
	}
	return out
}

func (d *demo) members() []settings {
	var out []settings
	for _, p := range d.peers {
		out = append(out, settings{"url": p.URL, "api": p.API})
	}
	return out
}

// pageConfig is what the demonstration itself serves: it takes no role and delivers nothing, and
// its peer of the cache fetches nothing.
func (d *demo) pageConfig() (*serveConfig, error) {
	own := d.peers[len(d.peers)-1]
	text, err := yaml.Marshal(settings{
		"name": "page", "listen": d.flags.listen,
		"interval": d.flags.timing.Interval.String(), "timeout": d.flags.timing.Timeout.String(),
		"cache": settings{"url": own.URL, "api": own.API, "peers": d.members(), "content_type": "text/plain", "announce_timeout": "5s"},
	})
	if err != nil {
		return nil, err
	}
	cfg := &serveConfig{}
	if err := parseConfig(text, cfg); err != nil {
		return nil, err
	}
	return cfg, cfg.complete()
}

// windows are those of the queue; a batch that was under way when its instance died is
// taken up after the second.
func (d *demo) windows() claim.Windows {
	first := max(d.flags.timing.Timeout, time.Second)
	return claim.Windows{First: first, Second: max(first, d.submit()+3*time.Second)}
}

// submit is how long a submission may take.
func (d *demo) submit() time.Duration { return min(d.flags.timing.Timeout, 2*time.Second) }

// proc is the process of an instance.
func (f *demoFleet) proc(name string) *demoProc {
	for _, p := range f.procs {
		if p.name == name {
			return p
		}
	}
	return nil
}

// up tells whether every instance runs, and answers that it is ready.
func (f *demoFleet) up(ctx context.Context) bool {
	for i, p := range f.procs {
		if p.running() == 0 || !demoAnswers(ctx, f.urls[i]+"/readyz") {
			return false
		}
	}
	return true
}
