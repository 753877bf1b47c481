package sink

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// SetGrace changes how much longer other members are waited for, until the test ends.
func SetGrace(t *testing.T, d time.Duration) {
	old := grace
	grace = d
	t.Cleanup(func() { grace = old })
}

// SubmitTo submits a message to a sink that delivers by a function.
func SubmitTo(ctx context.Context, deliver func(context.Context), a dispatch.Assignment) {
	to := receiver{deliver: func(ctx context.Context, _ alarm) dispatch.Answer { deliver(ctx); return dispatch.Answer{} }}
	(&sink{to: to, redacted: strings.NewReplacer()}).Submit(ctx, a)
}
