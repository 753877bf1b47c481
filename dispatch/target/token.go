package target

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

var errToken = errors.New("token file")

// tokenEvery is how often a file is looked at.
const tokenEvery = time.Second

// tokenFile is a secret in a file that others may renew.
type tokenFile struct {
	path string

	mu      sync.Mutex
	token   string
	changed time.Time // of the file
	looked  time.Time
}

// get returns the token. Its errors name the file and never what is in it.
func (f *tokenFile) get() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.token != "" && now.Sub(f.looked) < tokenEvery {
		return f.token, nil
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errToken, err)
	}
	if f.token == "" || !info.ModTime().Equal(f.changed) {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errToken, err)
		}
		token := strings.TrimPrefix(strings.TrimSpace(string(data)), "Bearer ")
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", fmt.Errorf("%w: %s must hold one token of printable ASCII", errToken, f.path)
		}
		f.token, f.changed = token, info.ModTime()
	}
	f.looked = now
	return f.token, nil
}

// concurrently calls f for each index below n, for a few of them at once.
func concurrently(n int, f func(i int)) {
	const atOnce = 8
	gate := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range n {
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			f(i)
		})
	}
	all.Wait()
}
