package shard

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// ErrRefused: an agent does not give a promise; the text says why.
var ErrRefused = errors.New("shard: promise refused")

// Promise is what the agent of a primary asks of every other member's agent when the
// store does not answer: neither to orchestrate nor to obey a promotion for so long. Nor does such an agent make
// its node follow another by itself.
// Whoever gives it counts on its own boot clock from when the question came; the
// primary counts from before it asked. All members have to promise.
type Promise struct {
	Shard string        `json:"shard"`
	From  string        `json:"from"` // node id of the primary
	To    string        `json:"to"`   // node id of who is asked
	Epoch int64         `json:"epoch"`
	For   time.Duration `json:"for_ns"`
	// Seq grows with each question under an epoch. One that is not above the latest that was
	// answered is refused: it was recorded and sent again.
	Seq int64 `json:"seq"`
}

// MaxPromise is the longest that may be asked for.
const MaxPromise = time.Minute

// Sign returns the authentication of the promise's question ("ask") or answer ("give"),
// under the shard's secret.
func (p Promise) Sign(secret, what string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%q %q %q %q %d %d %d", what, p.Shard, p.From, p.To, p.Epoch, p.For, p.Seq)
	return hex.EncodeToString(mac.Sum(nil))
}

// Verify reports whether the authentication is right.
func (p Promise) Verify(secret, what, mac string) bool {
	return secret != "" && hmac.Equal([]byte(mac), []byte(p.Sign(secret, what)))
}

// Check reports whether an agent may give the promise, given the row that it saw last and
// the highest epoch that it knows. The text says why not.
func (p Promise) Check(row Row, me string, known int64) (why string, ok bool) {
	switch {
	case p.To != me || p.Shard != row.Name:
		return "it is for another", false
	case p.For <= 0 || p.For > MaxPromise:
		return fmt.Sprintf("it may last for up to %v", MaxPromise), false
	case known > row.Epoch:
		return fmt.Sprintf("epoch %d has begun, which is newer than what is known of the shard here", known), false
	case p.From == "" || p.From != row.Primary || p.Epoch != row.PrimaryEpoch:
		return fmt.Sprintf("node %.8s of epoch %d is not the primary that is known here", p.From, p.Epoch), false
	case row.Plan != nil && row.Plan.Phase != Following:
		return "a plan to replace it is under way", false
	// It has to act as soon as the promises that were given before have ended, or sooner.
	case row.Request != nil && row.Request.Force:
		return "an operator asks to replace it", false
	}
	return "", true
}

// Promisers reaches the agents of other nodes without the store.
type Promisers interface {
	// RequestPromise asks the agent at an address for a promise, under the authentication mac, and
	// returns that of its answer. Any error means that nothing was promised.
	RequestPromise(ctx context.Context, agentAddress string, p Promise, mac string) (answer string, err error)
}
