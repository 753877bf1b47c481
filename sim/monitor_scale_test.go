package sim

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// A fleet of sources that is divided by hash among several databases, judged by the monitor's rule, in steps of 100 ms.
const (
	scaleStep     = 100 * time.Millisecond
	scaleBeat     = 600 // steps between two heartbeats of a source
	scaleMissed   = 3
	scaleLimit    = scaleBeat * scaleMissed
	scaleSteps    = 8000
	scaleDark     = 2000 // from then on the last database does not answer, for longer than the limit …
	scaleDarkEnds = 4400 // … until then
	scaleBases    = 10
	scaleLate     = 10 // steps by which an alarm may be late
)

// scaleBase is one of the databases, with the sources that it keeps.
type scaleBase struct {
	check   monitor.Check
	path    monitor.PathStatus
	dark    bool // it fails once
	noBlind bool // a broken twin: it takes its own blind period for the silence of its sources

	last        []uint32 // step of the last heartbeat
	blind       []uint32 // of the path by then, in steps
	quiet       map[uint32]*quietSource
	due         [][]uint32 // by step
	judged      int        // the last step whose due were
	evaluate    int
	falseAlarms int
}

// quietSource falls silent, and may return.
type quietSource struct {
	from, until    int
	lastBeat       int
	raised, ended  int
	onsets, abates int
}

func newScaleBase(n int, dark bool, r *rand.Rand) *scaleBase {
	b := &scaleBase{
		check: monitor.Check{Name: "fleet", Interval: scaleBeat * scaleStep, Missed: scaleMissed}.WithDefaults(), dark: dark,
		last: make([]uint32, n), blind: make([]uint32, n), quiet: map[uint32]*quietSource{}, due: make([][]uint32, scaleSteps+1),
	}
	for range n / 1000 {
		q := &quietSource{from: 1200 + r.IntN(1800), until: scaleSteps}
		if r.IntN(2) == 0 {
			q.until = q.from + 4500 // after its alarm, also where the database was dark
		}
		b.quiet[uint32(r.IntN(n))] = q
	}
	for id := range b.last {
		first := 1 + id%scaleBeat
		b.due[first+scaleLimit] = append(b.due[first+scaleLimit], uint32(id))
	}
	return b
}

func scaleAt(step int) monitor.StoreTime {
	return monitor.StoreTime(1e12).Add(time.Duration(step) * scaleStep)
}

func (b *scaleBase) step(now int) {
	if b.dark && now >= scaleDark && now < scaleDarkEnds {
		return // nothing is stored, and nothing judged
	}
	if !b.noBlind || now == 1 || b.path.LastSeen == scaleAt(now-1) {
		b.path.RecordProbe(scaleAt(now), monitor.Probe{Path: "http", TrustFor: time.Second, MaxGap: 2 * time.Second}, false)
	} else {
		b.path.LastSeen = scaleAt(now)
	}
	for id := uint32((now - 1) % scaleBeat); int(id) < len(b.last); id += scaleBeat {
		q := b.quiet[id]
		if q != nil && now >= q.from && now < q.until {
			continue
		}
		b.last[id], b.blind[id] = uint32(now), uint32(b.path.BlindTotal/scaleStep)
		if q != nil && now < q.from {
			q.lastBeat = now
		}
		if q != nil && q.raised > q.ended {
			b.judge(now, id) // a heartbeat of a source that is down makes it due
		}
	}
	for ; b.judged < now; b.judged++ { // also what came due while it was dark
		for _, id := range b.due[b.judged+1] {
			b.judge(now, id)
		}
		b.due[b.judged+1] = nil
	}
}

func (b *scaleBase) judge(now int, id uint32) {
	q := b.quiet[id]
	f := monitor.Facts{
		Now: scaleAt(now), State: monitor.Up, ExpectedFrom: scaleAt(0), LastBeat: scaleAt(int(b.last[id])),
		BlindAtBeat: time.Duration(b.blind[id]) * scaleStep, Path: b.path,
	}
	if q != nil && q.raised > q.ended {
		f.State, f.Alarm, f.Reason, f.OnsetAt = monitor.Down, "alarm", monitor.Silent, scaleAt(q.raised)
	}
	b.evaluate++
	v := b.check.Evaluate(f)
	switch v.Transition {
	case monitor.Onset:
		if q == nil {
			b.falseAlarms++
			return
		}
		q.raised, q.onsets = now, q.onsets+1
	case monitor.Abated:
		q.ended, q.abates = now, q.abates+1
	}
	if v.Due != monitor.Never {
		at := int((v.Due.Sub(scaleAt(0)) + scaleStep - 1) / scaleStep)
		if at = max(at, now+1); at <= scaleSteps {
			b.due[at] = append(b.due[at], id)
		}
	}
}

// wrong counts the quiet sources that have not one alarm, at its time, which ends if they return; worst is the latest one.
func (b *scaleBase) wrong() (wrong, worst int) {
	for _, q := range b.quiet {
		latest := q.lastBeat + scaleLimit + scaleLate
		if b.dark {
			latest += scaleDarkEnds - scaleDark + scaleBeat
		}
		ends := 0
		if q.until < scaleSteps-scaleBeat {
			ends = 1
		}
		if q.onsets != 1 || q.raised < q.lastBeat+scaleLimit || q.raised > latest || q.abates < ends {
			wrong++
		}
		if !b.dark {
			worst = max(worst, q.raised-q.lastBeat-scaleLimit)
		}
	}
	return wrong, worst
}

// TestMonitorScaleSimulation: ten million sources on ten databases, one of which fails for longer than the limit: each source
// that falls silent has one alarm, in time, and no other has.
func TestMonitorScaleSimulation(t *testing.T) {
	n := 200_000
	if os.Getenv("UNDERSTUDY_PROVE") == "1" {
		n = 10_000_000
	}
	began, evaluated, quiet, worst := time.Now(), 0, 0, 0
	for i := range scaleBases {
		b := newScaleBase(n/scaleBases, i == scaleBases-1, rand.New(rand.NewPCG(1, uint64(i))))
		for now := 1; now <= scaleSteps; now++ {
			b.step(now)
		}
		wrong, late := b.wrong()
		if b.falseAlarms > 0 || wrong > 0 {
			t.Errorf("database %d: %d false alarms, %d of %d silent sources without their alarm at its time", i, b.falseAlarms, wrong, len(b.quiet))
		}
		evaluated, quiet, worst = evaluated+b.evaluate, quiet+len(b.quiet), max(worst, late)
	}
	t.Logf("%d sources for %v: %d evaluations (%.0f a second of the sources' time), %d silent, the latest alarm %v after its limit; %v of processor time, judging and the simulation of heartbeats",
		n, scaleSteps*scaleStep, evaluated, float64(evaluated)/(scaleSteps*scaleStep).Seconds(), quiet, time.Duration(worst)*scaleStep, time.Since(began).Round(time.Second))
}

// TestMonitorScaleSimulationCatches: a database that takes its own outage for the silence of its sources is noticed.
func TestMonitorScaleSimulationCatches(t *testing.T) {
	b := newScaleBase(5000, true, rand.New(rand.NewPCG(1, 1)))
	b.noBlind = true
	for now := 1; now <= scaleSteps; now++ {
		b.step(now)
	}
	if b.falseAlarms < 1000 {
		t.Errorf("only %d false alarms of 5000 sources that were not heard for longer than their limit", b.falseAlarms)
	}
}
