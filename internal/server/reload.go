package server

import (
	"context"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/termtext"
)

// reloader reads the server's file again when it is told to. The server's cfg is the one in force: a key that waits for a restart is
// as it was.
type reloader struct {
	Reload
	*served
	roles *campaigns
}

func (r *reloader) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.When:
			sdnotify.Reloading()
			r.once(ctx)
			sdnotify.Ready()
		}
	}
}

// once reads the file, and changes what can be changed: all of it, or nothing if there is a
// mistake in it.
func (r *reloader) once(ctx context.Context) {
	log := r.host.Log
	next, err := r.Load()
	if err != nil {
		for _, e := range strictyaml.Each(err) {
			log.Error("the configuration was not read again, and nothing has changed", "err", termtext.Text(e.Error()))
		}
		return
	}
	if next.Empty() && !r.cfg.Empty() {
		log.Error("the configuration was not read again, and nothing has changed", "err", next.From()+" is empty: is it being written?")
		return
	}
	if r.cert != nil {
		if err := r.cert.reload(); err != nil {
			log.Error("the certificate stays as it was", "err", err)
		}
		if r.cfg.TLSClientCA == next.TLSClientCA { // else the key is reported, as each one is that has changed
			if clients, err := next.ClientCAs(); err == nil && clients != nil && !clients.Equal(r.cert.clients) {
				log.Warn("tls_client_ca: the CA in the file has changed; takes effect after a restart", "file", next.TLSClientCA)
			}
		}
	}
	for _, key := range settings.Changed(r.cfg, next) {
		if r.apply(ctx, key, next) {
			log.Info("a changed key of the file is applied", "key", key)
		} else {
			log.Warn("a changed key of the file takes effect after a restart", "key", key)
		}
	}
	log.Info("the configuration was read again", "file", settings.OrNoFile(next.From()))
}

// apply changes one key, if that can be done now.
func (r *reloader) apply(ctx context.Context, key string, next *settings.Server) bool {
	switch {
	case key == "log_level":
		level, _ := settings.LogOptions(next.LogLevel, "")
		r.host.Level.Set(level)
		r.cfg.LogLevel = next.LogLevel
	case key == "token":
		if r.server.SetToken(next.Token) != nil {
			return false // there was none, or must be none
		}
		r.cfg.Token = next.Token
	case key == "token_file": // "token" tells whether what it holds has changed
		r.cfg.TokenFile = next.TokenFile
	case strings.HasPrefix(key, "roles."):
		return r.applyRole(strings.TrimPrefix(key, "roles."), next)
	case (key == "monitor.checks" || key == "monitor.declared" || key == "monitor.keep_others") && r.monitor != nil && r.cfg.Monitor.Config == nil:
		if r.cfg.Monitor.Monitored.Same(&next.Monitor.Monitored) {
			return true // another of the three keys has brought it
		}
		if err := r.monitor.change(ctx, next.Monitor.Monitored); err != nil {
			r.host.Log.Error("the monitor's checks stay as they were", "err", err)
			return false
		}
	case key == "cache.peers" && r.peer != nil:
		if err := r.peer.ChangeMembers(ctx, next.Cache.Members()); err != nil {
			r.host.Log.Error("the list of the cache's members stays as it was", "err", err)
			return false
		}
		r.cfg.Cache.Peers = next.Cache.Peers
	default:
		return false
	}
	return true
}

// applyRole starts to campaign for a role that is new, and gives up one that is gone. One that
// is there in another way would have to be given up in between: that is left to a restart.
func (r *reloader) applyRole(name string, next *settings.Server) bool {
	of := func(role settings.Role) bool { return role.Role == name }
	was, is := slices.IndexFunc(r.cfg.Roles, of), slices.IndexFunc(next.Roles, of)
	switch {
	case was < 0:
		// The file was checked against its own timing, which takes effect after a restart. A campaign that the
		// timing in force does not allow would end the server.
		if err := r.roles.config(next.Roles[is]).Validate(); err != nil {
			r.host.Log.Error("role not campaigned for before a restart", "role", name, "err", err)
			return false
		}
		r.roles.start(next.Roles[is])
		r.cfg.Roles = append(slices.Clone(r.cfg.Roles), next.Roles[is])
	case is < 0:
		r.roles.stop(name)
		r.cfg.Roles = slices.Delete(slices.Clone(r.cfg.Roles), was, was+1)
	default:
		return false
	}
	r.server.SetRoles(r.cfg.RoleNames())
	r.names.setRoles(r.cfg.RoleNames())
	return true
}
