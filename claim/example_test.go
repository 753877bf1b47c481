package claim_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// Three tenants are billed, each by one instance at a time, whichever is up.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "claim")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	st, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "work.db")})
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: st, Instance: lease.NewInstance("worker-1", ""), Timing: claim.Windows{}.WithDefaults().Timing(),
	})
	if err != nil {
		log.Fatal(err)
	}
	keeping, end := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() { kept <- keeper.Run(keeping) }()

	if err := st.Claims().Offer(ctx, "tenants", []string{"acme", "globex", "initech"}, 0); err != nil {
		log.Fatal(err)
	}
	billed := make(chan string, 3)
	go func() {
		for range 3 {
			fmt.Println("billed", <-billed)
		}
		cancel()
	}()
	err = claim.Run(ctx, claim.Config{Space: "tenants", Keeper: keeper, Table: st.Claims()},
		func(_ context.Context, c claim.Claim) (claim.NextStep, error) {
			billed <- c.Key // with c.Term, for whoever compares terms
			return claim.NextStep{In: 24 * time.Hour}, nil
		})
	end()
	fmt.Println(err, <-kept)
	// Unordered output:
	// billed acme
	// billed globex
	// billed initech
	// <nil> <nil>
}
