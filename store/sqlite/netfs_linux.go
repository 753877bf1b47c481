package sqlite

import (
	"fmt"
	"syscall"
)

// checkFileSystem refuses a path on a file system that other hosts share, and
// returns a warning where that cannot be told.
func checkFileSystem(path string) (warning string, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return "", nil // opening the file will say more
	}
	name, verdict := fileSystem(uint32(st.Type))
	switch verdict {
	case shared:
		return "", fmt.Errorf("%s is a file system that other hosts share, on which SQLite's locks do not hold: "+
			"put the file on a local disk, or use PostgreSQL or Redis when several hosts take part", name)
	case unsure:
		return fmt.Sprintf("the file is on %s, which may be shared with other hosts; if it is, move it to a local disk", name), nil
	}
	return "", nil
}

type verdict int

const (
	local verdict = iota
	unsure
	shared
)

// fileSystem knows the kernel's magic numbers of file systems that more than one
// host can mount, from statfs(2) and the kernel's headers.
func fileSystem(magic uint32) (name string, v verdict) {
	switch magic {
	case 0x6969:
		return "NFS", shared
	case 0x517B, 0xFE534D42:
		return "SMB", shared
	case 0xFF534D42:
		return "CIFS", shared
	case 0x5346414F, 0x6B414653:
		return "AFS", shared
	case 0x73757245:
		return "Coda", shared
	case 0x564C:
		return "NCP", shared
	case 0x00C36400:
		return "Ceph", shared
	case 0x01021997:
		return "9p", shared
	case 0x0BD00BD0:
		return "Lustre", shared
	case 0x01161970:
		return "GFS2", shared
	case 0x7461636F:
		return "OCFS2", shared
	case 0x47504653:
		return "GPFS", shared
	case 0x19830326:
		return "BeeGFS", shared
	case 0x20030528:
		return "OrangeFS", shared
	case 0xAAD7AAEA:
		return "PanFS", shared
	case 0x786F4256:
		return "a VirtualBox shared folder", shared
	case 0xBACBACBC:
		return "a VMware shared folder", shared
	case 0x65735546:
		return "FUSE", unsure
	}
	return "", local
}
