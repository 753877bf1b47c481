package resolve_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/understudy-ha/understudy/resolve"
)

// Requests go to whoever is primary now. A connection to a former primary is closed, so that the
// next request finds the new one.
func ExampleDialer() {
	names, err := resolve.NewClient(resolve.ClientConfig{Servers: []string{"http://10.0.0.1:7600", "http://10.0.0.2:7600"}})
	if err != nil {
		panic(err)
	}
	billing, err := names.Dialer("billing")
	if err != nil {
		panic(err)
	}
	web := &http.Client{Transport: &http.Transport{DialContext: billing.DialContext}}
	_, _ = web.Get("http://billing/invoices") // the host in the URL is not looked up
}

func ExampleClient_Watch() {
	names, err := resolve.NewClient(resolve.ClientConfig{Servers: []string{"http://127.0.0.1:7600"}})
	if err != nil {
		panic(err)
	}
	_ = names.Watch(context.TODO(), "primary/orders", func(a resolve.Answer) error {
		if len(a.Holders) == 0 {
			fmt.Println("nobody")
			return nil
		}
		fmt.Println(a.Holders[0].Address, "under epoch", a.Holders[0].Term)
		return nil
	})
}
