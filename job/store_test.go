package job

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// manyJobs lists so many jobs.
type manyJobs struct {
	Store
	names []string
}

func (m manyJobs) List(_ context.Context, q Query) (page []Job, now time.Time, err error) {
	for _, name := range m.names {
		if name > q.After && len(page) < q.Limit {
			page = append(page, Job{Name: name})
		}
	}
	return page, now, nil
}

// TestReadPages: each job is read once, also by one that takes its page apart.
func TestReadPages(t *testing.T) {
	for _, n := range []int{0, 1, maxPage - 1, maxPage, maxPage + 1, 2*maxPage + 500} {
		var many manyJobs
		for i := range n {
			many.names = append(many.names, fmt.Sprintf("job-%05d", i))
		}
		var seen []string
		pages := 0
		err := readPages(t.Context(), many, time.Minute, Query{}, func(page []Job, _ time.Time) {
			if pages++; pages > 10 {
				t.Fatalf("%d jobs come in more than ten pages", n)
			}
			for _, j := range page {
				seen = append(seen, j.Name)
			}
			clear(page)
		})
		if err != nil || !slices.Equal(seen, many.names) {
			t.Errorf("of %d jobs %d were read, %v", n, len(seen), err)
		}
	}
}
