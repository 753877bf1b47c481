package sqlite

import "testing"

func TestFileSystem(t *testing.T) {
	for magic, want := range map[uint32]struct {
		name string
		v    verdict
	}{
		0x6969:     {"NFS", shared},
		0xFF534D42: {"CIFS", shared},
		0xFE534D42: {"SMB", shared},
		0x01021997: {"9p", shared},
		0x00C36400: {"Ceph", shared},
		0x786F4256: {"a VirtualBox shared folder", shared},
		0x65735546: {"FUSE", unsure},
		0xEF53:     {"", local}, // ext4
		0x01021994: {"", local}, // tmpfs
		0x58465342: {"", local}, // XFS
		0x9123683E: {"", local}, // btrfs
		0x794C7630: {"", local}, // overlay
		0x2FC12FC1: {"", local}, // ZFS
	} {
		if name, v := fileSystem(magic); name != want.name || v != want.v {
			t.Errorf("fileSystem(%#x) = %q, %v; want %q, %v", magic, name, v, want.name, want.v)
		}
	}
	if _, err := checkFileSystem(t.TempDir()); err != nil {
		t.Errorf("a temporary directory: %v", err)
	}
}
