package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/onap"
)

// maxDocument is the most bytes of a configuration's file.
const maxDocument = 64 << 20

// document is a configuration of the monitor, in any of the forms that it comes in.
type document struct {
	monitor.Configuration
	form string
	// onap is what else stands in the JSON of ONAP's service; nil in other forms.
	onap *onap.Config
}

// readDocument reads and checks a configuration from a file, or from in when that is
// "-"; properties are a second file that ONAP's JSON may go with.
func readDocument(path, properties string, in io.Reader) (document, error) {
	var text []byte
	var err error
	if path != "-" {
		var f *os.File
		if f, err = os.Open(path); err != nil {
			return document{}, usagef("%v", err)
		}
		defer f.Close()
		in = f
	}
	if text, err = io.ReadAll(io.LimitReader(in, maxDocument+1)); err != nil {
		return document{}, usagef("%s: %v", path, err)
	}
	if len(text) > maxDocument {
		return document{}, usagef("%s is larger than %d MiB", path, maxDocument>>20)
	}
	doc, err := parseDocument(text)
	if err == nil {
		doc.Origin = path
		err = doc.complete(properties)
	}
	if err != nil {
		return document{}, usagef("%s: %v", path, err)
	}
	return doc, nil
}

// complete adds the properties, and checks the whole.
func (d *document) complete(properties string) error {
	if properties != "" {
		if d.onap == nil {
			return errors.New("properties belong to the JSON of ONAP's heartbeat service, and this is the " + d.form)
		}
		c, err := withProperties(*d.onap, properties)
		if err != nil {
			return err
		}
		d.onap = &c
	}
	return d.Validate()
}

// parseDocument tells the forms apart by the keys at the top: the JSON of ONAP's heartbeat
// service, the server's file with its part "monitor", or that part alone.
func parseDocument(text []byte) (document, error) {
	var top map[string]yaml.Node
	if err := yaml.Unmarshal(text, &top); err != nil {
		_, err = readStrictly(text, &eventsConfig{}, "")
		return document{}, cmp.Or(err, errors.New("its keys cannot be told apart"))
	}
	if len(top) == 0 {
		return document{}, errors.New("it is empty")
	}
	for key := range top {
		if key == "heartbeat_config" || strings.HasPrefix(key, "streams_") || strings.HasPrefix(key, "pg_") || strings.HasPrefix(key, "CBS_") {
			return parseONAP(text)
		}
	}
	if _, server := top["monitor"]; server {
		return parseServerFile(text)
	}
	var c eventsConfig
	lines, err := readStrictly(text, &c, "")
	if err != nil {
		return document{}, err
	}
	c.locate(lines, "")
	if err := c.check(); err != nil {
		return document{}, err
	}
	return document{Configuration: c.configuration(""), form: "list of event names"}, nil
}

func parseONAP(text []byte) (document, error) {
	c, err := onap.Parse(text, os.LookupEnv)
	if err != nil {
		return document{}, err
	}
	return document{Configuration: c.Monitor, form: "JSON of ONAP's heartbeat service", onap: &c}, nil
}

func parseServerFile(text []byte) (document, error) {
	var c serveConfig
	if err := parseConfig(text, &c); err != nil {
		return document{}, err
	}
	if c.Monitor == nil {
		return document{}, errors.New("its part \"monitor\" is empty")
	}
	if err := c.Monitor.check(); err != nil {
		return document{}, err
	}
	if c.Monitor.Config != nil {
		return document{}, fmt.Errorf("its event names come from elsewhere (%s): name that", c.Monitor.Config)
	}
	return document{Configuration: c.Monitor.configuration(""), form: "server's file"}, nil
}
