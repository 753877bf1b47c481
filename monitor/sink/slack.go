package sink

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/understudy-ha/understudy/monitor"
)

// Colours of the bar beside a message.
const (
	red   = "#c62828"
	green = "#2e7d32"
)

func (*SlackConfig) name() string { return "slack" }

func (c *SlackConfig) validate() error { return c.HTTP.target(c.URL).Validate() }

func (c *SlackConfig) open(string) (receiver, error) {
	return openWebhook(c.HTTP.target(c.URL), c.URL, pathOf(c.URL), jsonType, func(a alarm) ([]byte, error) {
		return json.Marshal(slackMessage(a.m))
	})
}

type slackText struct {
	Attachments []slackAttachment `json:"attachments"`
}

// slackAttachment has no field in mrkdwn_in: none of it is read as markup.
type slackAttachment struct {
	Fallback string       `json:"fallback"`
	Color    string       `json:"color"`
	Title    string       `json:"title"`
	Fields   []slackField `json:"fields"`
	Footer   string       `json:"footer"`
	MrkdwnIn []string     `json:"mrkdwn_in"`
}

type slackField struct {
	Title string `json:"title"`
	Value string `json:"value"`
	Short bool   `json:"short"`
}

// short values stand two in a line.
const short = 40

func slackMessage(m monitor.AlarmMessage) slackText {
	a := slackAttachment{Color: red, Footer: "understudy", MrkdwnIn: []string{}}
	if m.Status == monitor.Abated {
		a.Color = green
	}
	a.Title = slackEscape(title(m))
	a.Fallback = a.Title
	for _, f := range facts(m) {
		a.Fields = append(a.Fields, slackField{slackEscape(f.name), slackEscape(f.text), len(f.text) <= short})
	}
	return slackText{Attachments: []slackAttachment{a}}
}

// slackEscape makes text of a name, and keeps it from mentioning people: an '@' that starts
// a word gets a zero-width space behind it, for receivers that look for mentions in all text.
func slackEscape(s string) string {
	var b strings.Builder
	before := ' '
	for _, r := range s {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '@' && !unicode.IsLetter(before) && !unicode.IsDigit(before):
			b.WriteString("@\u200b")
		default:
			b.WriteRune(r)
		}
		before = r
	}
	return b.String()
}
