package prometheus

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ticks a second in /proc, on every architecture that Go runs on.
const ticks = 100

// collectProcess adds figures of this process, under the names that client_golang gives them.
func collectProcess(s Scrape) {
	s = s.With("process_")
	if p, err := readStat(); err == nil {
		s.Counter("cpu_seconds_total", "User and system time in seconds.", float64(p.user+p.system)/ticks)
		s.Gauge("virtual_memory_bytes", "Virtual memory in bytes.", float64(p.virtual))
		s.Gauge("resident_memory_bytes", "Resident memory in bytes.", float64(p.resident*uint64(os.Getpagesize())))
		if boot, ok := bootTime(); ok {
			s.Gauge("start_time_seconds", "When the process started, in seconds since 1970.", float64(boot)+float64(p.started)/ticks)
		}
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.Gauge("open_fds", "Open files.", float64(len(files)))
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		s.Gauge("max_fds", "Most open files.", float64(limit.Cur))
	}
	if syscall.Getrlimit(syscall.RLIMIT_AS, &limit) == nil {
		s.Gauge("virtual_memory_max_bytes", "Most virtual memory in bytes; -1: no limit.", max(-1, float64(int64(limit.Cur))))
	}
	received, sent := traffic()
	s.Counter("network_receive_bytes_total", "Bytes received over the network.", received)
	s.Counter("network_transmit_bytes_total", "Bytes sent over the network.", sent)
}

type stat struct{ user, system, started, virtual, resident uint64 }

// readStat reads /proc/self/stat. The name of the program, in parentheses, may have anything in it.
func readStat() (s stat, err error) {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return s, err
	}
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 22 {
		return s, fmt.Errorf("/proc/self/stat has %d fields", len(fields))
	}
	// Fields are numbered from 1 in proc(5), and those after the name begin at 3.
	for number, to := range map[int]*uint64{14: &s.user, 15: &s.system, 22: &s.started, 23: &s.virtual, 24: &s.resident} {
		if *to, err = strconv.ParseUint(fields[number-3], 10, 64); err != nil {
			return s, err
		}
	}
	return s, nil
}

// bootTime is when the host started, in seconds since 1970.
func bootTime() (seconds uint64, ok bool) {
	text, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(text)) {
		if n, found := strings.CutPrefix(line, "btime "); found {
			seconds, err := strconv.ParseUint(strings.TrimSpace(n), 10, 64)
			return seconds, err == nil
		}
	}
	return 0, false
}

// traffic is what all that shares this network namespace has received and sent.
func traffic() (received, sent float64) {
	text, _ := os.ReadFile("/proc/self/net/netstat")
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "IpExt:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names[:min(len(names), len(fields))] {
			switch n, _ := strconv.ParseFloat(fields[i], 64); name {
			case "InOctets":
				received = n
			case "OutOctets":
				sent = n
			}
		}
	}
	return received, sent
}
