package lease

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME, clock_gettime(2): counts suspend

func sinceBoot() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		// Linux has had this clock since 2.6.39; without it nothing here is safe.
		panic("lease: CLOCK_BOOTTIME cannot be read: " + errno.Error())
	}
	return time.Duration(ts.Nano())
}
