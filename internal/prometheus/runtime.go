package prometheus

import (
	"runtime"
	"runtime/debug"
	rm "runtime/metrics"
	"time"
)

// collectRuntime adds figures of the Go runtime, under the names that client_golang gives them.
func collectRuntime(s Scrape) {
	s = s.With("go_")
	s.Gauge("info", "Information about the Go environment.", 1, "version", runtime.Version())
	s.Gauge("goroutines", "Number of goroutines that currently exist.", float64(runtime.NumGoroutine()))
	threads, _ := runtime.ThreadCreateProfile(nil)
	s.Gauge("threads", "Number of OS threads created.", float64(threads))
	s.Gauge("sched_gomaxprocs_threads", "The current runtime.GOMAXPROCS setting.", float64(runtime.GOMAXPROCS(0)))
	samples := []rm.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	rm.Read(samples)
	s.Gauge("gc_gogc_percent", "Heap size target percentage configured by the user.", float64(samples[0].Value.Uint64()))
	s.Gauge("gc_gomemlimit_bytes", "Go runtime memory limit configured by the user.", float64(samples[1].Value.Uint64()))
	collectPauses(s)

	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.Counter("memstats_alloc_bytes_total", "Bytes allocated in heap, even if freed since.", float64(m.TotalAlloc))
	s.Counter("memstats_frees_total", "Heap objects freed.", float64(m.Frees))
	s.Counter("memstats_mallocs_total", "Heap objects allocated.", float64(m.Mallocs))
	s.Gauge("memstats_last_gc_time_seconds", "When the last collection ended, in seconds since 1970.", float64(m.LastGC)/float64(time.Second))
	for _, b := range []struct {
		name, help string
		v          uint64
	}{
		{"alloc", "Bytes in heap and in use.", m.Alloc},
		{"buck_hash_sys", "Bytes of the profiling hash table.", m.BuckHashSys},
		{"gc_sys", "Bytes of the garbage collector's own data.", m.GCSys},
		{"heap_alloc", "Bytes in heap and in use.", m.HeapAlloc},
		{"heap_idle", "Heap bytes that wait to be used.", m.HeapIdle},
		{"heap_inuse", "Heap bytes in use.", m.HeapInuse},
		{"heap_released", "Heap bytes given back to the system.", m.HeapReleased},
		{"heap_sys", "Heap bytes obtained from the system.", m.HeapSys},
		{"mcache_inuse", "Bytes in use by mcache structures.", m.MCacheInuse},
		{"mcache_sys", "Bytes of mcache structures obtained from the system.", m.MCacheSys},
		{"mspan_inuse", "Bytes in use by mspan structures.", m.MSpanInuse},
		{"mspan_sys", "Bytes of mspan structures obtained from the system.", m.MSpanSys},
		{"next_gc", "Heap bytes at which the next collection starts.", m.NextGC},
		{"other_sys", "Bytes of other allocations of the system.", m.OtherSys},
		{"stack_inuse", "Bytes of stacks in use.", m.StackInuse},
		{"stack_sys", "Bytes of stacks obtained from the system.", m.StackSys},
		{"sys", "Bytes obtained from the system.", m.Sys},
	} {
		s.Gauge("memstats_"+b.name+"_bytes", b.help, float64(b.v))
	}
	s.Gauge("memstats_heap_objects", "Objects in heap.", float64(m.HeapObjects))
}

// collectPauses adds how long garbage collections paused the program.
func collectPauses(s Scrape) {
	stats := debug.GCStats{PauseQuantiles: make([]time.Duration, 5)}
	debug.ReadGCStats(&stats)
	var points []point
	for i, pause := range stats.PauseQuantiles {
		points = append(points, point{"", label{"quantile", number(float64(i) / 4)}, pause.Seconds()})
	}
	points = append(points, point{suffix: "_sum", value: stats.PauseTotal.Seconds()}, point{suffix: "_count", value: float64(stats.NumGC)})
	s.add("summary", "gc_duration_seconds", "Pauses of garbage collections.", nil, points...)
}
