package settings

import (
	"fmt"

	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// checkQueues refuses what can be refused without a store; files of secrets are read.
func (c *Server) checkQueues(f *strictyaml.Findings) {
	seen := map[string]bool{}
	for i := range c.Queues {
		q, path := &c.Queues[i], fmt.Sprintf("queues[%d]", i)
		err := q.Check()
		if err == nil {
			_, err = q.Target()
		}
		if err != nil {
			f.At(path, fmt.Errorf("queue %q: %w", q.Queue, err))
		} else if seen[q.Queue] {
			f.At(path, usererr.Errorf("queue %q appears twice", q.Queue))
		}
		seen[q.Queue] = true
	}
}
