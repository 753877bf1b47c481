package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// started reads what the last stage of a Dockerfile says an image is started with. An instruction that it does not know is an error.
func started(file string) (v1.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return v1.Config{}, err
	}
	var c v1.Config
	for i, line := range strings.Split(string(text), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#", "COPY", "RUN", "WORKDIR":
		case "FROM":
			c = v1.Config{Volumes: map[string]struct{}{}, ExposedPorts: map[string]struct{}{}}
		case "USER":
			c.User = rest
		case "ENV":
			c.Env = append(c.Env, rest)
		case "VOLUME":
			c.Volumes[rest] = struct{}{}
		case "EXPOSE":
			c.ExposedPorts[rest+"/tcp"] = struct{}{}
		case "HEALTHCHECK":
			c.Healthcheck, err = health(rest)
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &c.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &c.Cmd)
		default:
			err = fmt.Errorf("%q is not read here", word)
		}
		if err != nil {
			return v1.Config{}, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
	}
	return c, nil
}

// health reads "--interval=10s CMD [...]".
func health(text string) (*v1.HealthConfig, error) {
	options, command, found := strings.Cut(text, " CMD ")
	if !found {
		return nil, fmt.Errorf("HEALTHCHECK without CMD")
	}
	var c v1.HealthConfig
	f := flag.NewFlagSet("HEALTHCHECK", flag.ContinueOnError)
	for name, value := range map[string]*time.Duration{"interval": &c.Interval, "timeout": &c.Timeout, "start-period": &c.StartPeriod} {
		f.DurationVar(value, name, 0, "")
	}
	if err := f.Parse(strings.Fields(options)); err != nil {
		return nil, err
	}
	var argv []string
	err := json.Unmarshal([]byte(command), &argv)
	c.Test = append([]string{"CMD"}, argv...)
	return &c, err
}
