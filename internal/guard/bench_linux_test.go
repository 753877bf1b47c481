package guard

import (
	"context"
	"os"
	"testing"
	"time"
)

// BenchmarkStart is from Start until the program runs, through both watchers;
// end-ms is from the program's end until Wait has returned.
func BenchmarkStart(b *testing.B) {
	var end time.Duration
	for b.Loop() {
		b.StopTimer()
		r, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		p, err := Start(context.Background(), Config{
			Argv: shell("echo; read x"), Stdin: r, Env: environ("bench"), Deadline: now() + time.Minute,
		})
		b.StopTimer()
		if err != nil {
			b.Fatal(err)
		}
		began := now()
		closeAll([]*os.File{r, w})
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
		end += now() - began
		b.StartTimer()
	}
	b.ReportMetric(float64(end.Microseconds())/1000/float64(b.N), "end-ms")
}

// BenchmarkExtend is the cost of a new deadline.
func BenchmarkExtend(b *testing.B) {
	p, err := Start(context.Background(), Config{
		Argv: []string{"sleep", "1000"}, Env: environ("bench"), Deadline: now() + time.Minute,
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p.Extend(now() + time.Minute)
	}
	p.Stop()
	<-p.Done()
}
