package client_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/store/memory"
)

// A program adds a message to a queue and reads what waits there. The server runs in this process, on a store in memory;
// yours is "understudy server" on your database.
func Example() {
	server, err := api.New(api.Config{Store: memory.New(nil)})
	if err != nil {
		panic(err)
	}
	listener := httptest.NewServer(server.Handler())
	defer listener.Close()

	ctx := context.Background()
	c, err := client.New(client.Config{URL: listener.URL})
	if err != nil {
		panic(err)
	}
	if err := c.CreateQueue(ctx, "orders"); err != nil {
		panic(err)
	}
	// The ID makes the call safe to repeat: a message is added once.
	message := apitype.NewMessage{Key: "customer-7", ID: "order-1", JSON: []byte(`{"item":"lamp"}`)}
	for range 2 {
		added, err := c.Add(ctx, "orders", message)
		if err != nil {
			panic(err)
		}
		fmt.Println(added[0].ID, "added:", added[0].Added)
	}
	page, err := c.Messages(ctx, client.MessageQuery{Queue: "orders"})
	if err != nil {
		panic(err)
	}
	for _, m := range page.Messages {
		fmt.Println(m.Key, m.ID, m.State)
	}
	// Output:
	// order-1 added: true
	// order-1 added: false
	// customer-7 order-1 queued
}
