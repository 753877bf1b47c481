package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/fakerouter"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// getBody is the status and the body of a page.
func getBody(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// answers waits for a status of a page.
func answers(t *testing.T, method, url, body string, status int, part string) {
	t.Helper()
	realserver.Eventually(t, 2*time.Minute, fmt.Sprintf("%s %s answers %d", method, url, status), func() error {
		if got, text := getBody(t, method, url, body); got != status || !strings.Contains(text, part) {
			return fmt.Errorf("%d %s", got, text)
		}
		return nil
	})
}

// TestMonitorAsONAP: with nothing but a store and ONAP's environment, an instance waits for its configuration, and then reads
// and publishes where the configuration says, as the original does. Before, it takes nothing and throws nothing away.
func TestMonitorAsONAP(t *testing.T) {
	mr := fakerouter.New(t)
	var answer atomic.Value
	answer.Store("")
	config := func(in, out string) string {
		text, err := json.Marshal(map[string]any{
			"pg_ipAddress": "10.0.4.1", "pg_passwd": "s3cret-hunter2", "SERVICE_NAME": "hb", "consumerID": "site7-a", "groupID": "hb-site7",
			"CBS_polling_allowed": "True", "CBS_polling_interval": "1",
			"streams_subscribes": map[string]any{"ves-heartbeat": map[string]any{"type": "message_router", "dmaap_info": map[string]any{"topic_url": mr.URL(in)}}},
			"streams_publishes":  map[string]any{"dcae_cl_out": map[string]any{"type": "message_router", "dmaap_info": map[string]any{"topic_url": mr.URL(out)}}},
			"heartbeat_config": `{"vnfs":[{"eventName":"Heartbeat_vDNS","heartbeatcountmissed":1,"heartbeatinterval":1,"closedLoopControlName":"CL-dns",` +
				`"policyVersion":"1","policyName":"p","policyScope":"s","target_type":"VM","target":"vserver.vserver-name","version":"1"}]}`,
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	cbs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := answer.Load().(string)
		if text == "" || r.URL.Path != "/service_component/hb-7" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, text)
	}))
	defer cbs.Close()
	t.Setenv("CONFIG_BINDING_SERVICE", strings.TrimPrefix(cbs.URL, "http://"))
	t.Setenv("HOSTNAME", "hb-7")
	t.Setenv("CBS_CLIENT_CONFIG_PATH", filepath.Join(t.TempDir(), "none.yaml"))

	st := sqliteURL(t)
	log := runs(t, "monitor", "run", "--store", st, "--listen", "127.0.0.1:0", "--config-cbs", "--first-window", "1s")
	url := urlOf(t, log)
	answers(t, "GET", url+"/readyz", "", http.StatusServiceUnavailable, "it knows no component")
	if status, text := getBody(t, "POST", url+"/v1/beats", `{"event":"Heartbeat_vDNS","source":"dns-0"}`); status != http.StatusServiceUnavailable || !strings.Contains(text, "not_configured") {
		t.Errorf("a heartbeat before the configuration: %d %s", status, text)
	}
	sequence := 0
	beat := func(topic string) {
		sequence++
		mr.Publish(topic, fmt.Sprintf(`{"event":{"commonEventHeader":{"domain":"heartbeat","eventName":"Heartbeat_vDNS","sourceName":"dns-1","lastEpochMicrosec":%d,"sequence":%d}}}`,
			time.Now().UnixMicro(), sequence))
	}
	beat("HB_IN") // it waits on its topic
	if got := mr.Requests(); len(got) > 0 {
		t.Errorf("a topic is read before there is a configuration: %+v", got)
	}

	answer.Store(config("HB_IN", "CL_OUT"))
	answers(t, "GET", url+"/readyz", "", http.StatusOK, "")
	alarms := func(topic string, least int) {
		t.Helper()
		realserver.Eventually(t, 2*time.Minute, "alarms on "+topic, func() error {
			got := mr.Messages(topic)
			for _, text := range got {
				// Exactly as the original: its constant request ID, and no end.
				if !strings.Contains(text, `"requestID":"8c1b8bd8-06f7-493f-8ed7-daaa4cc481bc"`) || !strings.Contains(text, `"AAI":{"vserver.vserver-name":"dns-1"}`) {
					t.Fatalf("an alarm is %s", text)
				}
			}
			if len(got) < least {
				return errors.New(log.String())
			}
			return nil
		})
	}
	alarms("CL_OUT", 1) // the heartbeat that waited made the source known
	for _, r := range mr.Requests() {
		if r.Method == http.MethodGet && (r.Topic != "HB_IN" || r.Group != "hb-site7" || r.Consumer != "site7-a") {
			t.Errorf("read as %+v", r)
		}
	}
	for _, key := range []string{"pg_ipAddress, pg_passwd: not used", "SERVICE_NAME: not used", "pg_portNum"} {
		if !strings.Contains(log.String(), key) && key != "pg_portNum" || key == "pg_portNum" && strings.Contains(log.String(), key) {
			t.Errorf("%s: the log is\n%s", key, log)
		}
	}
	if n := strings.Count(log.String(), "SERVICE_NAME: not used"); n != 1 {
		t.Errorf("a warning came %d times", n)
	}
	if strings.Contains(log.String(), "s3cret") {
		t.Error("a password is in the log")
	}

	answer.Store(config("HB_IN2", "CL_OUT2"))
	realserver.Eventually(t, 2*time.Minute, "the other topics are used", func() error {
		beat("HB_IN2")
		if len(mr.Messages("CL_OUT2")) == 0 {
			return errors.New(log.String())
		}
		return nil
	})
	alarms("CL_OUT2", 1)
}

// TestServerWaitsForChecks: a server whose file has no checks is ready from the first that is applied.
func TestServerWaitsForChecks(t *testing.T) {
	mr := fakerouter.New(t)
	mr.Publish("HB_IN", `{"event":"job","source":"by-topic"}`)
	file := filepath.Join(t.TempDir(), "understudy.yaml")
	text := "listen: 127.0.0.1:0\nstore: " + sqliteURL(t) + "\nmonitor:\n  first_window: 1s\n  sinks: [{sink: log, log: {}}]\n  routers: [{router: in, url: " + mr.URL("HB_IN") + ", group: g, consumer: c}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	url := urlOf(t, runs(t, "serve", "-c", file))
	answers(t, "GET", url+"/readyz", "", http.StatusServiceUnavailable, "monitor config apply FILE")
	if status, text := getBody(t, "POST", url+"/v1/ping/job/db", ""); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, text)
	}
	if got := mr.Requests(); len(got) > 0 {
		t.Errorf("a topic is read before there is a check: %+v", got)
	}
	if status, text := getBody(t, "PUT", url+"/v1/monitor/configuration", `{"checks":[{"check":"job","interval_ms":3600000}]}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := getBody(t, "POST", url+"/v1/ping/job/db", ""); status != http.StatusOK {
		t.Errorf("right after the first configuration: %d %s", status, text)
	}
	answers(t, "GET", url+"/readyz", "", http.StatusOK, "")
	answers(t, "GET", url+"/v1/sources/job/by-topic", "", http.StatusOK, "by-topic")
}
