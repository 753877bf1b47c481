package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

func Example() {
	// A server that answers every request with "a slow value", in place of a cluster.
	server, err := zmtp.Listen("tcp://127.0.0.1:0", zmtp.Config{Kind: zmtp.ROUTER, Handler: zmtp.Handler{
		Message: func(c *zmtp.Conn, m zmtp.Message) {
			c.Send(zmtp.Message{m[0], []byte("="), []byte("a slow value"), {0xc0, 0x7a, 0x20, 0x64, 0x58, 0x01}})
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	c, err := client.New(client.Config{Servers: []string{server.Addr()}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	item, err := c.Get(ctx, "report/2016", client.Options{})
	if refusal, ok := errors.AsType[*client.Refusal](err); ok {
		log.Fatalf("no value; ask again in %v", refusal.RetryAfter)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, fresh until %s\n", item.Value, item.Expire.UTC().Format(time.DateTime))
	// Output: a slow value, fresh until 2016-11-14 18:36:40
}
