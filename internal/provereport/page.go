package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

var seedSaid = regexp.MustCompile(`UNDERSTUDY_SEED=(\d+)|(\d+) seeds from (\d+)`)

// seedsIn finds the seeds that a test said it tried: one, or the first of many.
func seedsIn(said []string) (seeds []string) {
	for _, m := range seedSaid.FindAllStringSubmatch(strings.Join(said, ""), -1) {
		if m[1] != "" {
			seeds = append(seeds, m[1])
		} else {
			seeds = append(seeds, m[3]+" and the "+m[2]+" after it")
		}
	}
	return seeds
}

// page is the table as a page of the documentation: with seeds, times, and the machine.
func (b *book) page(of string) string {
	var w strings.Builder
	all := b.sum()
	fmt.Fprintf(&w, "# What was tried on %s\n\n", of)
	fmt.Fprintf(&w, "Written by `make prove` from %s to %s, on %s.\n\n", stamp(b.began), stamp(b.last), machine())
	fmt.Fprintf(&w, "**%d tries, %d violations.** Broken variants, which the checks have to catch: %d caught, %d not. Simulated time: %d hours.\n", all.tried, all.violations, b.twins[0], b.twins[1], int64(b.simulated.Hours()))
	if len(b.failed) > 0 {
		fmt.Fprintf(&w, "**Failed: %s.**\n", strings.Join(b.failed, ", "))
	}
	if len(b.skipped) > 0 {
		fmt.Fprintf(&w, "\n**%d skipped, and so not tried:**\n\n- %s\n", len(b.skipped), strings.Join(b.skipped, "\n- "))
	}
	w.WriteString("\nTime is that of all tests of a row, of which several run at once. A seed is that of `UNDERSTUDY_SEED`, or of `SIM_FIRST` where others follow.\n")
	w.WriteString("\n|part|fault|tried|violations|time|seeds|\n|-|-|-|-|-|-|\n")
	for _, r := range b.sorted() {
		c := b.rows[r]
		took := (time.Duration(c.seconds * float64(time.Second))).Round(time.Second)
		fmt.Fprintf(&w, "|%s|%s|%d|%d|%v|%s|\n", r.part, r.fault, c.tried, c.violations, took, listed(c.seeds))
	}
	return w.String()
}

// listed names a few seeds, and how many more there are.
func listed(seeds []string) string {
	const shown = 3
	seeds = slices.Compact(seeds)
	if more := len(seeds) - shown; more > 0 {
		return fmt.Sprintf("%s, %d more", strings.Join(seeds[:shown], ", "), more)
	}
	return strings.Join(seeds, ", ")
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// machine says on what it ran, as far as Linux tells.
func machine() string {
	processor := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(text); m != nil {
			processor = string(m[1])
		}
	}
	system := runtime.GOOS
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		system = linux(string(text))
	}
	return fmt.Sprintf("%s, %d processors, %s, %s", processor, runtime.NumCPU(), system, runtime.Version())
}

// linux names a kernel by the first two numbers of its release: patch and build tell one machine from another, not what it can do.
func linux(release string) string {
	release = strings.TrimSpace(release)
	if m := regexp.MustCompile(`^\d+\.\d+`).FindString(release); m != "" {
		release = m
	}
	return "Linux " + release
}
