package elect_test

import (
	"context"
	"fmt"
	"log"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// A service runs its billing loop on one instance. Clients ask who that is.
func ExampleCampaign() {
	store := memory.New(nil) // in production: sqlite, postgres or redis
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: store, Instance: lease.NewInstance("web-1", "10.0.0.1:8080"),
	})
	if err != nil {
		log.Fatal(err)
	}
	keeping, stop := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() { kept <- keeper.Run(keeping) }()

	err = elect.Campaign(context.Background(), elect.Config{Keeper: keeper, Role: "billing"},
		func(ctx context.Context, term elect.Term) error {
			primary, err := elect.Resolve(ctx, store, "billing")
			if err != nil {
				return err
			}
			fmt.Println(primary.Name, "at", primary.Address, "is primary, in this term:", primary.Term == term.Number)
			// Work until ctx ends; send term.Number with every effect.
			return nil
		})
	fmt.Println("the work has returned:", err)

	_, err = elect.Resolve(context.Background(), store, "billing")
	fmt.Println(err)
	stop()
	fmt.Println(<-kept)
	// Output:
	// web-1 at 10.0.0.1:8080 is primary, in this term: true
	// the work has returned: <nil>
	// elect: the role is vacant: "billing"
	// <nil>
}
