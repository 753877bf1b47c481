package main

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/open"
)

// hidden stands where a secret is.
const hidden = "***"

// hiding is how a text is shown, by what its key says of secrets in it: nothing, "password"
// for a store's URL with one, "url" for another URL with one, "path" for a URL that is one, or "all".
type hiding func(secret, text string) string

func showAll(_, text string) string { return text }

// hide hides secrets.
func hide(secret, text string) string {
	switch {
	case text == "" || secret == "":
		return text
	case secret == "password":
		return redact(text)
	case secret == "url":
		plain, _, asks := strings.Cut(redact(text), "?")
		if asks {
			plain += "?" + hidden
		}
		return plain
	case secret == "path":
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			return u.Scheme + "://" + u.Host + "/" + hidden
		}
	}
	return hidden
}

// render writes a value as a file would have it, without what is empty; nil is nothing.
func render(v reflect.Value, secret string, h hiding) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		if n := render(v.Elem(), secret, h); n != nil {
			return n
		}
		return renderZero(v.Elem()) // it is there, and says what is otherwise left out
	}
	if v.IsZero() {
		return nil
	}
	switch x := v.Interface().(type) {
	case duration:
		return word(short(time.Duration(x)), "")
	case size:
		return word(x.String(), "")
	}
	switch v.Kind() {
	case reflect.Struct:
		return renderStruct(v, h)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			item := render(v.Index(i), secret, h)
			if item == nil {
				item = renderZero(v.Index(i))
			}
			n.Content = append(n.Content, item)
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			n.Content = append(n.Content, word(k.String(), "!!str"), word(h(secret, v.MapIndex(k).String()), "!!str"))
		}
		return n
	case reflect.String:
		return word(h(secret, v.String()), "!!str")
	case reflect.Float64:
		return word(strconv.FormatFloat(v.Float(), 'g', -1, 64), "")
	default:
		return word(fmt.Sprint(v.Interface()), "")
	}
}

// renderZero is a value that is there, though it is empty.
func renderZero(v reflect.Value) *yaml.Node {
	switch v.Kind() {
	case reflect.Struct:
		return &yaml.Node{Kind: yaml.MappingNode}
	case reflect.String:
		return word("", "!!str")
	default:
		return word(fmt.Sprint(v.Interface()), "")
	}
}

func renderStruct(v reflect.Value, h hiding) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range fileKeys(v.Type()) {
		if value := render(v.FieldByIndex(k.index), k.secret, h); value != nil {
			n.Content = append(n.Content, word(k.name, "!!str"), value)
		}
	}
	return n
}

func word(text, tag string) *yaml.Node {
	n := &yaml.Node{}
	if tag == "!!str" {
		n.SetString(text)
		return n
	}
	n.Kind, n.Value = yaml.ScalarNode, text
	return n
}

func (a *app) configShowAllCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print what a server would run with: the file, the environment and the defaults, without secrets",
		Long: `Print the configuration that "understudy serve -c FILE" would run with: what the file says, what the
environment says in its place, and the defaults of what neither says. Secrets are shown as ***. Without a file
it is the configuration of a server that has none.`,
		Example: `  understudy config show /etc/understudy.yaml
  UNDERSTUDY_LISTEN=127.0.0.1:9000 understudy config show -o json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s: %q is one argument too many; see --help", c.CommandPath(), args[1])
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := readConfig(strings.Join(args, ""))
			if err != nil {
				return err
			}
			if err := cfg.fill(a.storeURL); err != nil {
				return err
			}
			n := render(reflect.ValueOf(cfg).Elem(), "", hide)
			if a.json() {
				var v any
				if err := n.Decode(&v); err != nil {
					return err
				}
				return a.printJSON(v)
			}
			return a.printYAML(n)
		},
	}
}

func (a *app) printYAML(n *yaml.Node) error {
	e := yaml.NewEncoder(a.stdout)
	e.SetIndent(2)
	return e.Encode(n)
}

// fill says what is otherwise left to the parts: their defaults.
func (c *serveConfig) fill(storeURL string) (err error) {
	if c.StoreFile != "" {
		c.Store = ""
	} else if c.Store == "" {
		if c.Store = storeURL; storeURL == "" {
			if c.Store, err = open.DefaultURL(); err != nil {
				return err
			}
		}
	}
	if c.TokenFile != "" {
		c.Token = ""
	}
	fillTiming(&c.Interval, &c.Timeout, c.timing())
	orDefault(&c.LogLevel, "info")
	orDefault(&c.LogFormat, "text")
	for i := range c.Roles {
		orDefault(&c.Roles[i].Holders, 1)
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		q.FirstWindow, q.SecondWindow = duration(q.windows().First), duration(q.windows().Second)
		orDefault(&q.SubmitTimeout, duration(q.submitTimeout()))
	}
	if m := c.Monitor; m != nil {
		m.FirstWindow = duration(m.windows().First)
		for i := range m.Sinks {
			q := m.Sinks[i].queue()
			m.Sinks[i].FirstWindow, m.Sinks[i].SecondWindow, m.Sinks[i].SubmitTimeout = q.FirstWindow, q.SecondWindow, q.SubmitTimeout
		}
	}
	if c.Cache != nil {
		t := c.cacheTimings()
		c.Cache.TTL, c.Cache.FetchTimeout, c.Cache.AnnounceTimeout = duration(t.TTL), duration(t.Fetch), duration(t.Source)
	}
	for i := range c.Shards {
		s := &c.Shards[i]
		fillTiming(&s.Interval, &s.Timeout, s.timing())
	}
	return nil
}

func (c *serveConfig) cacheTimings() protocol.Timings { return c.Cache.timings().WithDefaults() }

func fillTiming(interval, timeout *duration, t lease.Timing) {
	*interval, *timeout = duration(t.Interval), duration(t.Timeout)
}

func orDefault[T comparable](v *T, to T) {
	var none T
	if *v == none {
		*v = to
	}
}
