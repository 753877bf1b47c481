package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Machine is what the figures were taken on.
type Machine struct {
	Processor  string `json:"processor"`
	Cores      int    `json:"cores"`
	Memory     string `json:"memory"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
	// Fsync is how long the disk takes for 4 KiB appended and synced.
	Fsync time.Duration `json:"fsync_ns"`
	// Commit of the source, and Date when the run began, UTC.
	Commit string `json:"commit"`
	Date   string `json:"date"`
	// Load of the last minute when the run began: others share the machine.
	Load     string            `json:"load"`
	Versions map[string]string `json:"versions"`
}

func describeMachine() Machine {
	b := &bed{}
	defer b.clear()
	m := Machine{
		Processor: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Memory: field("/proc/meminfo", "MemTotal"), Kernel: firstWords("/proc/sys/kernel/osrelease", 1),
		Load: firstWords("/proc/loadavg", 1), Versions: map[string]string{"go": runtime.Version(), "etcd": moduleVersion("go.etcd.io/etcd/server/v3"),
			"river": moduleVersion("github.com/riverqueue/river")},
	}
	m.Date = time.Now().UTC().Format(time.DateOnly)
	if out, err := exec.Command("git", "rev-parse", "--short=8", "HEAD").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	dir := b.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err == nil {
		m.FileSystem = fileSystem(int64(fs.Type))
	}
	var err error
	if m.Fsync, err = fsync(dir); err != nil {
		b.Fatalf("measuring the disk: %v", err)
	}
	m.Versions["sqlite"] = "modernc.org/sqlite " + moduleVersion("modernc.org/sqlite")
	for name, argv := range map[string][]string{"redis": {"redis-server", "--version"}, "postgres": {postgresProgram(), "--version"}} {
		if out, err := exec.Command(argv[0], argv[1:]...).Output(); err == nil {
			m.Versions[name] = versionIn(string(out))
		}
	}
	return m
}

func (m Machine) write(w io.Writer) {
	fmt.Fprintf(w, "All taken in one run, on %s at %s, on %s, %d cores, %s of memory, Linux %s; files on %s, where 4 KiB are synced in %v (median);\nload %s at the start.",
		m.Date, cmp.Or(m.Commit, "an unknown commit"), m.Processor, m.Cores, inGigabytes(m.Memory), majorMinor(m.Kernel), m.FileSystem, m.Fsync.Round(time.Microsecond), m.Load)
	for _, name := range []string{"postgres", "redis", "sqlite", "etcd", "river", "go"} {
		if v := m.Versions[name]; v != "" {
			fmt.Fprintf(w, " %s: %s.", name, v)
		}
	}
	fmt.Fprintln(w)
}

// inGigabytes is memory as the kernel writes it, in kB of 1,024 bytes, rounded. Other texts, and less than a gigabyte, stay.
func inGigabytes(memory string) string {
	digits, isKB := strings.CutSuffix(memory, " kB")
	kb, err := strconv.ParseInt(digits, 10, 64)
	if !isKB || err != nil || kb < 1<<20 {
		return memory
	}
	return fmt.Sprintf("%d GB", (kb+1<<19)>>20)
}

var twoNumbers = regexp.MustCompile(`^\d+\.\d+`)

// majorMinor is a kernel's version without its patch and build, which tell one machine from another, not its speed.
func majorMinor(release string) string {
	return cmp.Or(twoNumbers.FindString(release), release)
}

// versionIn is the first word of a program's answer that looks like a version.
func versionIn(answer string) string {
	for _, word := range strings.Fields(answer) {
		word = strings.TrimPrefix(word, "v=")
		if word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return strings.TrimSpace(answer)
}

// fsync is the median time to make 4 KiB at the end of a file durable.
func fsync(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	page := make([]byte, 4096)
	var s sample
	for range 200 {
		began := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		s = append(s, time.Since(began))
	}
	return s.median(), nil
}

// field is the first value of a name in a file of "name: value" lines.
func field(path, name string) string {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstWords(path string, n int) string {
	data, _ := os.ReadFile(path)
	words := strings.Fields(string(data))
	return strings.Join(words[:min(n, len(words))], " ")
}

func fileSystem(magic int64) string {
	switch magic {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x01021994:
		return "tmpfs (nothing is durable)"
	case 0x794c7630:
		return "overlayfs"
	}
	return fmt.Sprintf("file system %#x", magic)
}

// moduleVersion is the version of a module that this program was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "not linked"
}
