package strictyaml

import "testing"

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "1000": 1000, "64KiB": 64 << 10, "256MiB": 256 << 20, "2GiB": 2 << 30} {
		var s Size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%s: %d, %v", text, s, err)
		}
		if text != "1000" && s.String() != text {
			t.Errorf("%s is shown as %s", text, s.String())
		}
	}
	for _, text := range []string{"", "0", "-1", "5MB", "MiB", "1.5GiB", "99999999999GiB", "9223372036854775807"} {
		if err := new(Size).Set(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
