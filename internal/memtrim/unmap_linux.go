package memtrim

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// unmapProgram unmaps the resident pages of the program's own file. Only what the program has never written to: a page with a
// relocation of the loader in it would come back from the file without it.
func unmapProgram() {
	program, err := os.Executable()
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer func() { _ = maps.Close() }()
	var from, to uintptr
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		line := lines.Text()
		if copied, ok := strings.CutPrefix(line, "Anonymous:"); ok && from != 0 && strings.TrimSpace(copied) == "0 kB" {
			// An error leaves the pages where they are.
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
		}
		// A mapping starts with a line such as "00400000-0109a000 r-xp 00000000 fe:00 10019570 /usr/bin/understudy".
		if mode := strings.Fields(line); len(mode) > 5 && len(mode[1]) == 4 {
			from = 0
			if mode[5] == program && (mode[1] == "r-xp" || mode[1] == "r--p") {
				_, _ = fmt.Sscanf(mode[0], "%x-%x", &from, &to)
			}
		}
	}
}
