package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/internal/sdnotify"
)

// reloader reads the server's file again when it is told to.
type reloader struct {
	app  *app
	load func() (*serveConfig, error)
	hup  chan os.Signal
	cfg  *serveConfig // that is in force; a key that waits for a restart is as it was
}

// live is what can be changed while the server runs.
type live struct {
	roles   *campaigns
	monitor *servedMonitor // nil without one
	server  *api.Server
}

func (r *reloader) run(ctx context.Context, l live) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.hup:
			sdnotify.Reloading()
			r.once(ctx, l)
			sdnotify.Ready()
		}
	}
}

// once reads the file, and changes what can be changed: all of it, or nothing if there is a
// mistake in it.
func (r *reloader) once(ctx context.Context, l live) {
	log := r.app.log
	next, err := r.load()
	if err != nil {
		for _, e := range each(err) {
			log.Error("the configuration was not read again, and nothing has changed", "err", clean(e.Error()))
		}
		return
	}
	if len(next.lines) == 0 && len(r.cfg.lines) > 0 {
		log.Error("the configuration was not read again, and nothing has changed", "err", next.file+" is empty: is it being written?")
		return
	}
	if r.cfg.cert != nil {
		if err := r.cfg.cert.reload(); err != nil {
			log.Error("the certificate stays as it was", "err", err)
		}
	}
	for _, key := range changedKeys(r.cfg, next) {
		if r.apply(ctx, l, key, next) {
			log.Info(key + ": changed in the file; it is in force")
		} else {
			log.Warn(key + ": changed in the file; takes effect after a restart")
		}
	}
	log.Info("the configuration was read again", "file", orNoFile(next.file))
}

// apply changes one key, if that can be done now.
func (r *reloader) apply(ctx context.Context, l live, key string, next *serveConfig) bool {
	switch {
	case key == "log_level":
		level, _ := logOptions(next.LogLevel, "")
		r.app.level.Set(level)
		r.cfg.LogLevel = next.LogLevel
	case key == "token":
		if l.server.SetToken(next.Token) != nil {
			return false // there was none, or shall be none
		}
		r.cfg.Token = next.Token
	case key == "token_file": // "token" tells whether what it holds has changed
		r.cfg.TokenFile = next.TokenFile
	case strings.HasPrefix(key, "roles."):
		return r.applyRole(l, strings.TrimPrefix(key, "roles."), next)
	case (key == "monitor.events" || key == "monitor.declared" || key == "monitor.keep") && l.monitor != nil && r.cfg.Monitor.Config == nil:
		if r.cfg.Monitor.eventsConfig.same(&next.Monitor.eventsConfig) {
			return true // another of the three keys has brought it
		}
		if err := l.monitor.change(ctx, next.Monitor.eventsConfig); err != nil {
			r.app.log.Error("the monitor's events stay as they were", "err", err)
			return false
		}
	default:
		return false
	}
	return true
}

// applyRole starts to campaign for a role that is new, and gives up one that is gone. One that
// is there in another way would have to be given up in between: that is left to a restart.
func (r *reloader) applyRole(l live, name string, next *serveConfig) bool {
	of := func(role roleConfig) bool { return role.Role == name }
	was, is := slices.IndexFunc(r.cfg.Roles, of), slices.IndexFunc(next.Roles, of)
	switch {
	case was < 0:
		l.roles.start(next.Roles[is])
		r.cfg.Roles = append(slices.Clone(r.cfg.Roles), next.Roles[is])
	case is < 0:
		l.roles.stop(name)
		r.cfg.Roles = slices.Delete(slices.Clone(r.cfg.Roles), was, was+1)
	default:
		return false
	}
	return true
}

// changedKeys are the keys at the top of the file, and those of its parts, that differ; of
// roles, each by its name.
func changedKeys(was, is *serveConfig) []string {
	return changedBelow(reflect.ValueOf(was).Elem(), reflect.ValueOf(is).Elem(), "")
}

func changedBelow(was, is reflect.Value, path string) []string {
	var out []string
	for _, k := range fileKeys(was.Type()) {
		a, b := was.FieldByIndex(k.index), is.FieldByIndex(k.index)
		name := path + k.name
		switch {
		case written(a) == written(b):
		case name == "roles":
			out = append(out, changedRoles(a.Interface().([]roleConfig), b.Interface().([]roleConfig))...)
		case path == "" && a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
			out = append(out, changedBelow(a.Elem(), b.Elem(), name+".")...)
		default:
			out = append(out, name)
		}
	}
	return out
}

func changedRoles(was, is []roleConfig) []string {
	text := func(list []roleConfig) map[string]string {
		out := map[string]string{}
		for _, r := range list {
			out[r.Role] = written(reflect.ValueOf(r))
		}
		return out
	}
	a, b := text(was), text(is)
	var out []string
	for _, r := range slices.Concat(was, is) {
		if name := "roles." + r.Role; a[r.Role] != b[r.Role] && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// written is a value as it stands in a file, secrets and all: never to be shown.
func written(v reflect.Value) string {
	n := render(v, "", showAll)
	if n == nil {
		return ""
	}
	text, err := yaml.Marshal(n)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}
