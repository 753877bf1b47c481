package termtext

import (
	"testing"
	"time"
)

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", time.Hour: "1h", 90 * time.Minute: "1h30m", 24 * time.Hour: "24h",
		61 * time.Second: "1m1s", 3605 * time.Second: "1h0m5s", 1500 * time.Millisecond: "1.5s", 10 * time.Minute: "10m",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v became %s, want %s", d, got, want)
		}
	}
}

func TestRedact(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:secret@h/db": "postgres://u:***@h/db",
		"postgres://u:s@cret@h/db": "postgres://u:***@h/db",
		"redis://:secret@h":        "redis://:***@h",
		"postgres://u@h/db":        "postgres://u@h/db",
		"postgres://h/db?user=u&password=secret&sslmode=require":  "postgres://h/db?user=u&password=***&sslmode=require",
		"postgres://u:secret@h/db?sslpassword=secret&connect=1":   "postgres://u:***@h/db?sslpassword=***&connect=1",
		"postgres://h/db?application_name=me@here:1":              "postgres://h/db?application_name=me@here:1",
		"sqlite:/home/u:x@y/a.db":                                 "sqlite:/home/u:x@y/a.db",
		"redis+sentinel://u:secret@h:26379,h2:26379/m/0?prefix=p": "redis+sentinel://u:***@h:26379,h2:26379/m/0?prefix=p",
	} {
		if got := URL(url); got != want {
			t.Errorf("%s became %s, want %s", url, got, want)
		}
	}
}
