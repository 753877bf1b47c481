package catalog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/catalog"
)

// TestReadAgain: whatever a reading takes, the next one is done before what was read ends, as long as that can be
// without taking more of the store's time than is promised.
func TestReadAgain(t *testing.T) {
	const interval = time.Second
	for _, life := range []time.Duration{time.Millisecond, 300 * time.Millisecond, time.Second, 4 * time.Second, time.Minute} {
		for took := time.Duration(0); took < 2*life; took += life / 50 {
			least, most := catalog.NextReading(interval, took, life)
			if least > most || least < interval/10 || least < took/4 {
				t.Errorf("%v of %v: rests %v to %v", took, life, least, most)
			}
			if inTime := took <= 2*life/5 && life >= 4*interval/10; inTime && took+most+life/2 > life {
				t.Errorf("%v of %v: rests up to %v, so that a reading of half a life comes too late", took, life, most)
			}
			if calm := 11*took+interval < life/2; calm && (least < 10*took || most < interval) {
				t.Errorf("%v of %v: rests %v to %v without need", took, life, least, most)
			}
		}
	}
}

// TestCatalogOnASlowStore: readings that take long are made often enough that nothing ends in between, and no
// more often.
func TestCatalogOnASlowStore(t *testing.T) {
	for _, slow := range []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, 1500 * time.Millisecond} {
		const life = 4 * time.Second // of a lease of 5 s that is renewed every second
		s := newShelf()
		s.slow = slow
		s.views["a"] = shard.View{Row: shard.Row{Name: "a", Rev: 1}, Lease: lease.Lease{Session: "s", Remaining: life}}
		runs(t, s, func(d *catalog.Catalog) {
			time.Sleep(slow + time.Second)
			synctest.Wait()
			before, _ := s.counts()
			for range 1200 {
				if age, err := d.Freshness(); err != nil || age >= life {
					t.Fatalf("readings of %v: the latest is %v old, %v", slow, age, err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			lists, _ := s.counts()
			if spent := time.Duration(lists-before) * slow; lists-before > 90 || spent > time.Minute*4/5 {
				t.Errorf("readings of %v: %d in a minute", slow, lists-before)
			}
		})
	}
}

// TestCatalogOfShortLeases: what ends sooner than an interval is read more often.
func TestCatalogOfShortLeases(t *testing.T) {
	const life = 800 * time.Millisecond
	s := newShelf()
	s.views["a"] = shard.View{
		Row:   shard.Row{Name: "a", Rev: 1},
		Nodes: []shard.Record{{ID: "n", Role: shard.Replica, Age: 200 * time.Millisecond, Timeout: time.Second}},
	}
	runs(t, s, func(d *catalog.Catalog) {
		for range 600 {
			if age, err := d.Freshness(); err != nil || age >= life {
				t.Fatalf("the latest reading is %v old, %v", age, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}
