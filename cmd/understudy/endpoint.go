package main

import (
	"context"
	"net/url"
	"os"
	"strings"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// resolveEndpoint decides whether commands use the store or a server: a flag goes before the
// environment, and with both in the environment a command asks the server if it can.
func (a *app) resolveEndpoint() error {
	switch {
	case a.serverURL == "" && a.StoreURL == "" && a.flags.Changed("store"):
		return usererr.Errorf("--store is empty: leave it out for the default, or name a store")
	case a.serverURL != "" && a.StoreURL != "":
		return usererr.Errorf("--store and --server exclude each other: a server is on its own store")
	case a.serverURL != "":
		return checkServerURL("--server", a.serverURL)
	case a.StoreURL != "":
		a.storeNamed = true
		return nil
	}
	// A variable that is wrong fails only the commands that use it: needStore and serverClient return what is wrong.
	if a.serverURL = os.Getenv(serverVariable); a.serverURL != "" {
		a.serverErr = checkServerURL(serverVariable, a.serverURL)
	}
	a.StoreURL, a.storeFile, a.storeErr = settings.EnvironmentStore(os.Environ())
	if a.storeNamed = a.StoreURL != "" || a.storeErr != nil; a.storeNamed || a.usesServer() {
		return nil
	}
	if a.StoreURL, a.storeErr = open.DefaultURL(); a.storeErr != nil { // the command may need no store, or have one from a file
		a.storeErr = usererr.Errorf("no --store is given and there is no state directory: %v", a.storeErr)
	}
	return nil
}

// serverVariable has the URL of the server that commands ask by default.
const serverVariable = "UNDERSTUDY_SERVER"

// checkServerURL checks a URL that a flag or a variable says.
func checkServerURL(from, text string) error {
	to, err := url.Parse(text)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return usererr.Errorf("%s %q: use http://HOST:PORT or https://HOST:PORT", from, termtext.URL(text))
	}
	return nil
}

// warnOfVariables logs once which variables of the environment have no effect on the command. Unknown ones are one kind: with a
// typo in UNDERSTUDY_STORE, each host has a store of its own. The others set keys of the server's file that the command has flags for.
// All other keys are left out: a container has one environment for the server and for all commands in it.
func (a *app) warnOfVariables() {
	if a.warnedOfVariables {
		return
	}
	a.warnedOfVariables = true
	settings.LogUnknownVariables(a.Log, os.Environ())
	unread := settings.ServerVariables(os.Environ(), func(k strictyaml.EnvKey) bool {
		f := k.FlagIn(a.flags)
		return f != nil && !f.Changed
	})
	if len(unread) > 0 {
		a.Log.Warn("this command does not read these variables; it has flags for them", "variables", strings.Join(unread, " "))
	}
}

// needStore fails if there is no store, not even the default file: only a server is named, or storeErr says why. It also fails if
// the store's kind, by its URL, cannot hold what the command's noun needs; nothing is connected.
func (a *app) needStore() error {
	a.warnOfVariables()
	if a.StoreURL == "" && a.storeErr != nil {
		return a.storeErr
	}
	if a.StoreURL == "" {
		return usererr.Errorf("%s works on the store itself: give --store", a.command)
	}
	if a.requiredFeature == "" {
		return nil
	}
	return a.CheckStoreSupports(a.requiredFeature)
}

// usesServer reports whether commands ask a server.
func (a *app) usesServer() bool { return a.serverURL != "" }

// tokenIn is what is shown to a server: the token in a file, else the one that the environment names; "" is nothing.
func tokenIn(file string) (string, error) {
	if file == "" {
		return settings.EnvironmentToken(os.Environ())
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
