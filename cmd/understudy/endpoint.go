package main

import (
	"context"
	"net/url"
	"os"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/store"
)

// resolveEndpoint decides whether commands use the store or a server: a flag goes before the
// environment, and with both in the environment a command asks the server if it can.
func (a *app) resolveEndpoint() error {
	switch {
	case a.serverURL != "" && a.StoreURL != "":
		return usererr.Errorf("--store and --server exclude each other: a server is on its own store")
	case a.serverURL == "" && a.StoreURL == "":
		a.serverURL, a.StoreURL = os.Getenv("UNDERSTUDY_SERVER"), os.Getenv("UNDERSTUDY_STORE")
	}
	if a.serverURL == "" {
		return nil
	}
	to, err := url.Parse(a.serverURL)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return usererr.Errorf("--server %q: use http://HOST:PORT or https://HOST:PORT", termtext.URL(a.serverURL))
	}
	return nil
}

// needStore refuses a command that a server cannot do when there is no store, and one about queues, or what else its noun keeps, on
// a store that never keeps any, by its URL: before anything connects to a store that may be down.
func (a *app) needStore() error {
	if a.StoreURL == "" && a.noDefault != nil {
		return a.noDefault
	}
	if a.StoreURL == "" {
		return usererr.Errorf("%s works on the store itself: give --store", a.command)
	}
	if a.keeps == "" {
		return nil
	}
	return a.CanKeep(a.keeps)
}

// usesServer reports whether commands ask a server.
func (a *app) usesServer() bool { return a.serverURL != "" }

// tokenIn is what is shown to a server: the token in a file, else the one in the environment; "" is nothing.
func tokenIn(file string) (string, error) {
	if file == "" {
		return os.Getenv("UNDERSTUDY_TOKEN"), nil
	}
	return settings.ReadSecret("--token-file", file)
}

// openStore tries once to open the store. It does not make a file that is missing, whose path may be mistyped, unless the command
// sets mayCreate.
func (a *app) openStore(ctx context.Context) (store.Store, error) {
	if err := a.needStore(); err != nil {
		return nil, err
	}
	return a.Open(ctx, instance.Opening{MustExist: !a.mayCreate})
}
