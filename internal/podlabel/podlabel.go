package podlabel

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
)

// What a pod has.
const (
	Label      = "understudy/role"
	Primary    = "primary" // the label's value; other nodes have no label
	Annotation = "understudy/epoch"
)

const (
	firstPause = 100 * time.Millisecond
	mostPause  = 30 * time.Second
	// recheck is how often the pod is compared with the role when nothing changes: somebody else may have changed the label.
	recheck = 30 * time.Second
	// lastWait bounds what is done about the label when the process ends.
	lastWait = 5 * time.Second
)

// errNewer is why a primary's pod is not labelled.
var errNewer = errors.New("the pod shows a newer epoch than this agent's: does another agent label it?")

// Pod keeps the label of this process's own pod as it should be.
type Pod struct {
	log  *slog.Logger
	wake chan struct{}
	send func(ctx context.Context, body []byte) (answer []byte, err error)

	deadline time.Duration // of one request

	mu   sync.Mutex
	want role
}

// role is what the pod should show.
type role struct {
	known   bool
	primary bool
	epoch   int64 // of a primary
}

// shown is what the pod shows. Without a version it is not known.
type shown struct {
	version string
	label   string
	epoch   int64
}

// Set says whether the node takes writes, and under which epoch. It does not wait.
func (p *Pod) Set(primary bool, epoch int64) {
	want := role{true, primary, epoch}
	if !primary {
		want.epoch = 0
	}
	p.mu.Lock()
	changed := p.want != want
	p.want = want
	p.mu.Unlock()
	if changed {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

func (p *Pod) wanted() role {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.want
}

// Run labels the pod until ctx ends, and then tries for a moment to leave it as it was last set.
func (p *Pod) Run(ctx context.Context) error {
	pauses := backoff.Backoff{First: firstPause, Most: mostPause}
	var have shown
	var failure string
	for ctx.Err() == nil {
		pause := recheck
		body, err := next(have, p.wanted())
		if body != nil {
			have, err = p.patch(ctx, body)
		}
		switch {
		case ctx.Err() != nil:
			continue
		case errors.Is(err, errConflict): // the kubelet writes to the pod, too
			pause = pauses.Next()
		case err != nil:
			pause = pauses.Next()
			if after, ok := errors.AsType[*refusal](err); ok {
				pause = max(pause, min(after.retryAfter, mostPause))
			}
			if failure != kind(err) {
				failure = kind(err)
				p.log.Warn("the pod cannot be labelled; trying again", "err", err)
			}
		case body != nil:
			continue // with what the pod shows now
		default:
			pauses.Reset()
			if failure != "" {
				failure = ""
				p.log.Info("the pod is labelled again")
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
			have = shown{} // look again
		}
		timer.Stop()
	}
	p.leave(ctx)
	return nil
}

// leave is the last look: the agent has stopped, and so, perhaps, did its node's role.
func (p *Pod) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWait)
	defer cancel()
	var have shown
	for range 8 { // a conflict takes two requests more
		body, _ := next(have, p.wanted())
		if body == nil || ctx.Err() != nil {
			return
		}
		var err error
		if have, err = p.patch(ctx, body); err != nil && !errors.Is(err, errConflict) {
			p.log.Warn("the pod keeps its label", "err", err)
			return
		}
	}
}

// next is the PATCH that the pod needs to show what it should; nil: none.
func next(have shown, want role) ([]byte, error) {
	var changes object
	switch {
	case !want.known:
		return nil, nil
	case have.version == "":
		return []byte("{}"), nil
	case want.primary && have.epoch > want.epoch:
		return nil, errNewer
	case want.primary && (have.label != Primary || have.epoch != want.epoch):
		epoch, primary := strconv.FormatInt(want.epoch, 10), Primary
		changes.Metadata.Labels = map[string]*string{Label: &primary}
		changes.Metadata.Annotations = map[string]*string{Annotation: &epoch}
	case !want.primary && have.label != "":
		changes.Metadata.Labels = map[string]*string{Label: nil}
	default:
		return nil, nil
	}
	changes.Metadata.ResourceVersion = have.version
	return json.Marshal(changes)
}

// object is a pod, as far as it is read and written here.
type object struct {
	Metadata struct {
		ResourceVersion string             `json:"resourceVersion,omitempty"`
		Labels          map[string]*string `json:"labels,omitempty"`
		Annotations     map[string]*string `json:"annotations,omitempty"`
	} `json:"metadata"`
}

// patch sends one PATCH and returns what the pod shows then; after an error that is not known.
func (p *Pod) patch(ctx context.Context, body []byte) (shown, error) {
	ctx, cancel := context.WithTimeout(ctx, p.deadline)
	defer cancel()
	answer, err := p.send(ctx, body)
	if err != nil {
		return shown{}, err
	}
	var o object
	if err := json.Unmarshal(answer, &o); err != nil || o.Metadata.ResourceVersion == "" {
		return shown{}, errAnswer
	}
	have := shown{version: o.Metadata.ResourceVersion}
	if v := o.Metadata.Labels[Label]; v != nil {
		have.label = *v
	}
	if v := o.Metadata.Annotations[Annotation]; v != nil {
		have.epoch, _ = strconv.ParseInt(*v, 10, 64) // what is not a number is written over
	}
	return have, nil
}
