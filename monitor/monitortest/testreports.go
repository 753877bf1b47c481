package monitortest

import (
	"bytes"
	"errors"
	"strings"

	"github.com/understudy-ha/understudy/monitor"
)

func reportTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"report/the newest is kept":             testReport,
		"report/goes with its source":           testReportGone,
		"report/overlapping runs":               testOverlappingRuns,
		"report/a source by the id of its ping": testPingLabel,
		"report/one secret for all":             testSecret,
	}
}

func testReport(b *bench) {
	b.ready("a")
	ref := monitor.SourceRef{Check: "e", Source: "a"}
	if r, err := b.Report(b.ctx, ref); err != nil || !r.At.IsZero() || len(r.Body) > 0 {
		b.Errorf("before any: %+v, %v", r, err)
	}
	long := bytes.Repeat([]byte("x\x00"), monitor.MaxReport)
	for _, want := range []monitor.Report{
		{Kind: monitor.ReportFail, Code: 3, Run: "r1", Body: []byte("disk full\n\xff")},
		{Kind: monitor.ReportLog, Body: long},
	} {
		if err := b.KeepReport(b.ctx, ref, want); err != nil {
			b.Fatalf("KeepReport: %v", err)
		}
		got, err := b.other().Report(b.ctx, ref)
		want.Body = want.Body[:min(len(want.Body), monitor.MaxReport)]
		if err != nil || got.Kind != want.Kind || got.Code != want.Code || got.Run != want.Run || !bytes.Equal(got.Body, want.Body) || !near(got.At, b.now()) {
			b.Errorf("kept %v: %v %d %q, %d bytes at %v; %v", want.Kind, got.Kind, got.Code, got.Run, len(got.Body), got.At, err)
		}
	}
	for _, other := range []monitor.SourceRef{{Check: "e", Source: "nobody"}, {Check: "none", Source: "a"}, {Check: "\x00", Source: "\xff"}} {
		_, err := b.Report(b.ctx, other)
		if kept := b.KeepReport(b.ctx, other, monitor.Report{}); !errors.Is(err, monitor.ErrNoSource) || !errors.Is(kept, monitor.ErrNoSource) {
			b.Errorf("%q: %v, %v; want ErrNoSource", other, err, kept)
		}
	}
}

func testReportGone(b *bench) {
	b.ready("a")
	ref := monitor.SourceRef{Check: "e", Source: "a"}
	if err := b.KeepReport(b.ctx, ref, monitor.Report{Kind: monitor.ReportLog, Body: []byte("old")}); err != nil {
		b.Fatal(err)
	}
	b.configure(each("f"))
	b.sweep(limit, 10)
	b.configure(each("e"))
	b.resolve("e", "a")
	if r, err := b.Report(b.ctx, ref); err != nil || len(r.Body) > 0 {
		b.Errorf("a source of the same name has the report of one that was forgotten: %+v, %v", r, err)
	}
}

// testOverlappingRuns: one run's success must not hide that another one hangs.
func testOverlappingRuns(b *bench) {
	id := b.ready("a")[0]
	one, two := monitor.RunKey("one"), monitor.RunKey("two")
	running := func(what string, want bool) {
		b.Helper()
		if c := b.candidate(id); (c.RunStarted != 0) != want {
			b.Errorf("%s: running is %v", what, !want)
		}
	}
	send := func(s monitor.Signal, run int64) {
		before := b.source("e", "a").Beats
		b.stamp(monitor.HeartbeatUpdate{Source: id, Signal: s, Run: run})
		if after := b.source("e", "a").Beats; s != monitor.SignalStart && after != before+1 {
			b.Errorf("%d beats, after %d", after, before)
		}
	}
	send(monitor.SignalStart, one)
	send(monitor.SignalSuccess, two)
	running("another run has ended", true)
	send(monitor.SignalSuccess, one)
	running("it has ended", false)
	send(monitor.SignalStart, one)
	send(monitor.SignalStart, two)
	send(monitor.SignalSuccess, one)
	running("the later of two goes on", true)
	send(monitor.SignalSuccess, 0)
	running("a success without a run", false)
	send(monitor.SignalStart, 0)
	send(monitor.SignalSuccess, one)
	running("a start without a run", false)
	send(monitor.SignalStart, one)
	send(monitor.SignalFail, two)
	running("any failure", false)
}

func testPingLabel(b *bench) {
	b.configure(each("e"), each("f"))
	id := "d1665499-e827-441f-bf13-8f15e8f4c0b9"
	for _, d := range []monitor.Declaration{
		{Check: "e", Source: "a", Labels: map[string]string{monitor.PingLabel: id, "site": "north"}},
		{Check: "e", Source: "b", Labels: map[string]string{"site": id}},
		{Check: "f", Source: "c", Labels: map[string]string{monitor.PingLabel: `a "name" with all in it`}}, {Check: "f", Source: "d"},
	} {
		if _, err := b.Declare(b.ctx, []monitor.Declaration{d}); err != nil {
			b.Fatal(err)
		}
	}
	for value, want := range map[string]string{id: "e/a", `a "name" with all in it`: "f/c", "none": "", "": ""} {
		found, err := b.Sources(b.ctx, monitor.SourceQuery{Label: monitor.PingLabel, Value: value, Limit: 2})
		var names []string
		for _, s := range found {
			names = append(names, s.Check+"/"+s.Source)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			b.Errorf("%q is %q, want %q; %v", value, got, want, err)
		}
	}
}

func testSecret(b *bench) {
	first := b.settings().Secret
	second, err := b.other().Settings(b.ctx)
	if err != nil || len(first) < 16 || !bytes.Equal(first, second.Secret) {
		b.Errorf("%d bytes, then %d; the same: %v; %v", len(first), len(second.Secret), bytes.Equal(first, second.Secret), err)
	}
}
