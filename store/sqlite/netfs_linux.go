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

// sharedFileSystems are the kernel's magic numbers of file systems that more than one host can mount, from statfs(2) and the
// kernel's headers.
var sharedFileSystems = map[uint32]string{
	0x6969:     "NFS",
	0x517B:     "SMB",
	0xFE534D42: "SMB",
	0xFF534D42: "CIFS",
	0x5346414F: "AFS",
	0x6B414653: "AFS",
	0x73757245: "Coda",
	0x564C:     "NCP",
	0x00C36400: "Ceph",
	0x01021997: "9p",
	0x0BD00BD0: "Lustre",
	0x01161970: "GFS2",
	0x7461636F: "OCFS2",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0x20030528: "OrangeFS",
	0xAAD7AAEA: "PanFS",
	0x786F4256: "a VirtualBox shared folder",
	0xBACBACBC: "a VMware shared folder",
}

func fileSystem(magic uint32) (name string, v verdict) {
	const fuse = 0x65735546 // may be anything
	if magic == fuse {
		return "FUSE", unsure
	}
	if name := sharedFileSystems[magic]; name != "" {
		return name, shared
	}
	return "", local
}
