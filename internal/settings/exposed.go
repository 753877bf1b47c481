package settings

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/internal/strictyaml"
)

// ExposedFiles returns the files of secrets, of the token to the key of a certificate, that the settings name and that
// more users of this host than their owner may read, as "KEY PATH (MODE)". Of a file of root's, its group may: it is the service's.
func ExposedFiles(settings ...any) []string {
	var out []string
	for _, s := range settings {
		eachSecretFile(reflect.ValueOf(s), "", func(key, path string) {
			if mode, exposed := exposedMode(path); exposed {
				out = append(out, fmt.Sprintf("%s %s (%04o)", key, path, mode))
			}
		})
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ExposedWarning is one warning for all of these files; "" without any.
func ExposedWarning(files []string) string {
	if len(files) == 0 {
		return ""
	}
	return fmt.Sprintf("other users of this host can read %s: %s", strings.Join(files, ", "), secret.FileAdvice)
}

// exposedMode returns the mode of a file, and whether its group or others may read it.
func exposedMode(path string) (os.FileMode, bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() { // a pipe, for instance: its reader is this process
		return 0, false
	}
	hidden := os.FileMode(0o044)
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid == 0 {
		hidden = 0o004
	}
	return info.Mode().Perm(), info.Mode().Perm()&hidden != 0
}

// eachSecretFile calls f for each key that names a file with a secret and is set.
func eachSecretFile(v reflect.Value, path string, f func(key, path string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			eachSecretFile(v.Elem(), path, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachSecretFile(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	case reflect.Struct:
		for _, k := range strictyaml.Keys(v.Type()) {
			eachSecretOf(v.Type(), k.Name, v.FieldByIndex(k.Index), strings.TrimPrefix(path+"."+k.Name, "."), f)
		}
	}
}

func eachSecretOf(within reflect.Type, key string, v reflect.Value, path string, f func(key, path string)) {
	switch {
	case key == "header_files":
		for name, file := range v.Interface().(map[string]string) {
			f(path+"."+name, file)
		}
	case v.Kind() == reflect.String:
		isSecret := key == "tls_key" || strings.HasSuffix(key, "_file") && key != "ca_file" || key == "file" && within == reflect.TypeFor[PingKey]()
		if isSecret && v.String() != "" {
			f(path, v.String())
		}
	default:
		eachSecretFile(v, path, f)
	}
}
