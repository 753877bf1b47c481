package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/onap"
)

// Document is a configuration of the monitor, in any of the forms that it comes in.
type Document struct {
	monitor.Configuration
	Form string
	// Outdated has a warning for each key that has an old name, or no effect any more.
	Outdated []string
	// ONAP is what else stands in the JSON of ONAP's service; nil in other forms.
	ONAP *onap.Config
}

// ReadDocument reads and checks a configuration from a file, or from in when that is
// "-"; properties are a second file that ONAP's JSON may go with.
func ReadDocument(path, properties string, in io.Reader) (Document, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = readBounded(path, in)
	} else {
		text, err = readFile(path)
	}
	if err != nil {
		return Document{}, err
	}
	doc, err := parseDocument(text)
	if err == nil {
		doc.Origin = path
		err = doc.complete(properties)
	}
	if err != nil {
		return Document{}, usererr.Errorf("%s: %v", path, err)
	}
	return doc, nil
}

// complete adds the properties, and checks the whole.
func (d *Document) complete(properties string) error {
	if properties != "" {
		if d.ONAP == nil {
			return errors.New("properties belong to the JSON of ONAP's heartbeat service, and this is the " + d.Form)
		}
		c, err := withProperties(*d.ONAP, properties)
		if err != nil {
			return err
		}
		d.ONAP = &c
	}
	return d.Validate()
}

// parseDocument tells the forms apart by the keys at the top: the JSON of ONAP's heartbeat
// service, the server's file with its part "monitor", or that part alone.
func parseDocument(text []byte) (Document, error) {
	var top map[string]yaml.Node
	if err := yaml.Unmarshal(text, &top); err != nil {
		_, err = strictyaml.Read(text, &Monitored{}, "")
		return Document{}, cmp.Or(err, errors.New("its keys cannot be told apart"))
	}
	if len(top) == 0 {
		return Document{}, errors.New("it is empty")
	}
	for key := range top {
		if key == "heartbeat_config" || strings.HasPrefix(key, "streams_") || strings.HasPrefix(key, "pg_") || strings.HasPrefix(key, "CBS_") {
			return parseONAP(text)
		}
	}
	if _, server := top["monitor"]; server {
		return parseServerFile(text)
	}
	var c Monitored
	file, err := strictyaml.Read(text, &c, "")
	if err != nil {
		return Document{}, err
	}
	c.locate(file.Lines, "")
	if err := c.check(); err != nil {
		return Document{}, err
	}
	return Document{Configuration: c.Configuration(""), Form: "list of checks", Outdated: file.Outdated}, nil
}

func parseONAP(text []byte) (Document, error) {
	c, err := onap.Parse(text, os.LookupEnv)
	if err != nil {
		return Document{}, err
	}
	return Document{Configuration: c.Monitor, Form: "JSON of ONAP's heartbeat service", ONAP: &c}, nil
}

func parseServerFile(text []byte) (Document, error) {
	var c Server
	if err := Parse(text, &c); err != nil {
		return Document{}, err
	}
	if c.Monitor == nil {
		return Document{}, errors.New("its part \"monitor\" is empty")
	}
	if err := c.Monitor.check(); err != nil {
		return Document{}, err
	}
	if c.Monitor.Config != nil {
		return Document{}, fmt.Errorf("its checks come from elsewhere (%s): name that", c.Monitor.Config)
	}
	return Document{Configuration: c.Monitor.Configuration(""), Form: "server's file", Outdated: c.outdated}, nil
}
