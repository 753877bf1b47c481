package intake

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Events as senders of three generations make them: version numbers that are numbers, then texts; fields as a list of names
// and values, then as a map.
var stock = map[string]string{
	"5": `{"event":{"commonEventHeader":{"version":3.0,"domain":"heartbeat","eventId":"heartbeat0000249","eventName":"Heartbeat_vDNS",
 "eventType":"vDNS","internalHeaderFields":{"collectorTimeStamp":"Wed, 25 11 2026 09:00:00 GMT"},"lastEpochMicrosec":1795223000000000,"nfNamingCode":"vdns","nfcNamingCode":"lb",
 "priority":"Normal","reportingEntityId":"","reportingEntityName":"dns-oam","sequence":249,"sourceId":"","sourceName":"dns-5","startEpochMicrosec":1795223000000000},
 "heartbeatFields":{"heartbeatFieldsVersion":1.1,"heartbeatInterval":20,"additionalFields":[{"name":"eventTime","value":"09:00"}]}}}`,
	"7.1": `{"event":{"commonEventHeader":{"version":"4.1","vesEventListenerVersion":"7.1","domain":"heartbeat","eventId":"heartbeat-71","eventName":"Heartbeat_vDNS",
 "lastEpochMicrosec":1795223000000000,"nfNamingCode":"vdns","nfVendorName":"ACME","priority":"Normal","reportingEntityName":"dns-oam","sequence":0,"sourceName":"dns-7.1",
 "startEpochMicrosec":1795223000000000,"timeZoneOffset":"UTC-05:30"},"heartbeatFields":{"heartbeatFieldsVersion":"3.0","heartbeatInterval":20,"additionalFields":{"eventTime":"09:00"}}}}`,
	"7.2": `{"event":{"commonEventHeader":{"version":"4.1","vesEventListenerVersion":"7.2.1","domain":"heartbeat","eventId":"heartbeat-72","eventName":"Heartbeat_vDNS",
 "lastEpochMicrosec":1795223000000000,"priority":"Normal","reportingEntityName":"dns-oam","sequence":1,"sourceName":"dns-7.2","startEpochMicrosec":1795223000000000,
 "stndDefinedNamespace":"3GPP-FaultSupervision"},"heartbeatFields":{"heartbeatFieldsVersion":"3.0","heartbeatInterval":20}}}`,
}

// faulty is an event of another domain.
const faulty = `{"event":{"commonEventHeader":{"version":"4.1","vesEventListenerVersion":"7.2.1","domain":"fault","eventId":"fault-1","eventName":"Heartbeat_vDNS",
 "lastEpochMicrosec":1795223000000000,"priority":"High","reportingEntityName":"dns-oam","sequence":1,"sourceName":"dns-7.2","startEpochMicrosec":1795223000000000},
 "faultFields":{"faultFieldsVersion":"4.0","alarmCondition":"PilotNumberPoolExhaustion","eventSeverity":"CRITICAL","eventSourceType":"other","specificProblem":"none left","vfStatus":"Active"}}}`

// TestStockSenders: what each generation sends is taken at its URL, with a slash at the end or without, and answered with
// the version headers that it looks for.
func TestStockSenders(t *testing.T) {
	for version, body := range stock {
		major, latest := version[:1], map[string]string{"5": "5.4.1", "7": "7.2.1"}[version[:1]]
		bare := strings.TrimSuffix(strings.TrimPrefix(body, `{"event":`), "}")
		for path, body := range map[string]string{"": body, "/": body, "/eventBatch": `{"eventList":[` + bare + `]}`, "/eventBatch/": `{"eventList":[` + bare + `]}`} {
			r := newRig(t, HTTPConfig{})
			w := r.do("POST", "/eventListener/v"+major+path, body, "Content-Type", "application/json", "X-MinorVersion", "1")
			got := r.flow.taken()
			if w.Code != 202 || w.Body.Len() > 0 || len(got) != 1 || got[0].Check != "Heartbeat_vDNS" || got[0].Source != "dns-"+version {
				t.Errorf("%s, %s: %d %s, %+v", version, path, w.Code, w.Body, got)
			}
			h := w.Header()
			if got := strings.Join([]string{major, h.Get("X-MinorVersion"), h.Get("X-PatchVersion")}, "."); got != latest || h.Get("X-LatestVersion") != latest {
				t.Errorf("%s, %s: headers %v", version, path, h)
			}
		}
	}
	r := newRig(t, HTTPConfig{})
	if w := r.do("POST", "/eventListener/v7", `{"event":{}}`); w.Header().Get("X-LatestVersion") != "7.2.1" || !strings.Contains(w.Body.String(), `{"requestError":{"ServiceException"`) {
		t.Errorf("a refusal: %v %s", w.Header(), w.Body)
	}
	if w := r.do("POST", "/eventListener/v8/x", stock["7.2"]); w.Code != 404 || !strings.Contains(w.Body.String(), `{"requestError":{"ServiceException"`) || !strings.Contains(w.Body.String(), "versions 5 and 7") {
		t.Errorf("another version: %d %s", w.Code, w.Body)
	}
}

// TestOtherDomains: whatever is valid is accepted and counted, but only a heartbeat is one, unless its check says otherwise.
func TestOtherDomains(t *testing.T) {
	r := newRig(t, HTTPConfig{})
	if w := r.do("POST", "/eventListener/v7", faulty); w.Code != 202 || len(r.flow.taken()) != 0 {
		t.Errorf("%d %s, %+v", w.Code, w.Body, r.flow.taken())
	}
	if got := r.http.Ignored(); got != (IgnoredStats{OtherDomain: 1}) || len(r.rejected.Counts()) != 0 {
		t.Errorf("%+v, rejected %v", got, r.rejected.Counts())
	}
	if w := r.do("POST", "/v1/beats", faulty); w.Code != 400 || !strings.Contains(w.Body.String(), "the domain is not heartbeat") {
		t.Errorf("as a heartbeat: %d %s", w.Code, w.Body)
	}
	open := newRig(t, HTTPConfig{AnyDomain: func(check string) bool { return check == "Heartbeat_vDNS" }})
	for range 2 { // the decoder is used again
		if w := open.do("POST", "/eventListener/v7", faulty); w.Code != 202 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if got := open.flow.taken(); len(got) != 2 || open.http.Ignored() != (IgnoredStats{}) {
		t.Errorf("a check of any domain: %+v", got)
	}
}

// TestUnknownHeartbeats: a collector takes a heartbeat that nobody configured, and says so once a minute.
func TestUnknownHeartbeats(t *testing.T) {
	unknown := strings.Replace(stock["7.2"], "Heartbeat_vDNS", "xHeartbeat", 1)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRig(t, HTTPConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 130 {
			if w := r.do("POST", "/eventListener/v7", unknown); w.Code != 202 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			time.Sleep(time.Second)
		}
		if got := r.http.Ignored(); got != (IgnoredStats{Unknown: 130}) {
			t.Errorf("%+v", got)
		}
		if n := strings.Count(log.String(), "\n"); n != 3 || !strings.Contains(log.String(), "count=60") || strings.Contains(log.String(), "dns-7.2") {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
	r := newRig(t, HTTPConfig{RejectUnknown: true})
	if w := r.do("POST", "/eventListener/v7", unknown); w.Code != 400 || !strings.Contains(w.Body.String(), "unknown_event") {
		t.Errorf("rejected: %d %s", w.Code, w.Body)
	}
}

// TestRouterDomains: a topic may have more than heartbeats on it.
func TestRouterDomains(t *testing.T) {
	for _, all := range []bool{false, true} {
		r := runRouter(t, func(c *RouterConfig) { c.AnyDomain = func(string) bool { return all } })
		r.server.Publish("t", stock["5"], faulty)
		until(t, "both are read", func() bool { s := r.router.Stats(); return s.Messages == 2 && s.Accepted+s.OtherDomain == 2 })
		if s := r.router.Stats(); (s.OtherDomain == 0) != all || s.Bad != 0 {
			t.Errorf("any domain %v: %+v", all, s)
		}
	}
}
