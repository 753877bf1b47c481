package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuTimes is how long a process, each of its children, and those of its children
// that have ended, ran on a processor. The kernel counts it in nanoseconds; the
// usual counters of hundredths of a second would lose most of what a thousand
// nearly idle processes use.
func cpuTimes(pid int) map[int]time.Duration {
	out := map[int]time.Duration{}
	if own, ok := ranFor(pid); ok {
		out[pid] = own
	}
	out[-pid] = childrenThatEnded(pid) // a key of its own: the times of several processes are put together
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, word := range strings.Fields(string(list)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		if t, ok := ranFor(child); ok {
			out[child] = t
		}
	}
	return out
}

// ranFor adds up the threads of a process.
func ranFor(pid int) (sum time.Duration, ok bool) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		words := strings.Fields(string(data))
		if len(words) == 0 {
			continue
		}
		n, err := strconv.ParseInt(words[0], 10, 64)
		if err == nil {
			sum, ok = sum+time.Duration(n), true
		}
	}
	return sum, ok
}

// childrenThatEnded are fields 16 and 17 of proc(5), in hundredths of a second.
func childrenThatEnded(pid int) time.Duration {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(data), ") ") // the name may hold anything else
	words := strings.Fields(rest)
	var sum int64
	for _, i := range []int{13, 14} {
		if i < len(words) {
			n, _ := strconv.ParseInt(words[i], 10, 64)
			sum += n
		}
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// residentMemory is VmRSS, in bytes.
func residentMemory(pid int) int64 {
	kib, _, _ := strings.Cut(field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS"), " ")
	n, _ := strconv.ParseInt(kib, 10, 64)
	return n << 10
}
