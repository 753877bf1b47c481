package disk

import (
	"fmt"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/cache"
)

const benchEntries = 100_000

func fill(b *testing.B, s *Storage) {
	value := strings.Repeat("v", 1<<10)
	records := make([]cache.Record, 0, 1000)
	for i := range benchEntries {
		records = append(records, record(fmt.Sprintf("key/%d", i), value))
		if len(records) == cap(records) {
			if err := s.Save(b.Context(), records); err != nil {
				b.Fatal(err)
			}
			records = records[:0]
		}
	}
}

// BenchmarkLoad opens and loads 100,000 entries of 1 KiB.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir)
	fill(b, s)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s, err := Open(dir, nil)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		if _, err := s.Load(b.Context(), func(cache.Record) error { n++; return nil }); err != nil || n != benchEntries {
			b.Fatal(n, err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSave replaces entries of 1 KiB in batches.
func BenchmarkSave(b *testing.B) {
	for _, batch := range []int{1, 100, 5000} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := open(b, b.TempDir())
			value := strings.Repeat("v", 1<<10)
			records := make([]cache.Record, batch)
			for i := range records {
				records[i] = record(fmt.Sprintf("key/%d", i), value)
			}
			for b.Loop() {
				if err := s.Save(b.Context(), records); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/entry")
		})
	}
}

// BenchmarkRaise is one synced commit.
func BenchmarkRaise(b *testing.B) {
	s := open(b, b.TempDir())
	i := int64(0)
	for b.Loop() {
		i++
		if err := s.Raise(b.Context(), i); err != nil {
			b.Fatal(err)
		}
	}
}
