package cache_test

import (
	"context"
	"fmt"
	"net"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

// A cluster of one peer. With more, every peer lists all of them in Members.
func Example() {
	self := protocol.Member{URL: "tcp://" + free(), API: "tcp://" + free()}
	peer, err := cache.New(cache.Config{
		Self:    self.URL,
		Members: []protocol.Member{self},
		Origin: func(ctx context.Context, f cache.Fetch) (cache.Value, error) {
			fmt.Println("the origin is asked for", f.Key)
			return cache.Value{Data: []byte("a slow value")}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- peer.Run(ctx) }()

	for range 2 {
		item, err := peer.Get(ctx, "answer", cache.GetOptions{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %s\n", item.From, item.Value)
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// the origin is asked for answer
	// miss: a slow value
	// hit: a slow value
	// <nil>
}

// free is an address that nobody listened on a moment ago.
func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return ""
	}
	defer l.Close()
	return l.Addr().String()
}
