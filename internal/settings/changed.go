package settings

import (
	"reflect"
	"slices"

	"github.com/understudy-ha/understudy/internal/strictyaml"
)

// Changed are the keys at the top of the file, and those of its parts, that differ; of
// roles, each by its name.
func Changed(was, is *Server) []string {
	return changedBelow(reflect.ValueOf(was).Elem(), reflect.ValueOf(is).Elem(), "")
}

func changedBelow(was, is reflect.Value, path string) []string {
	var out []string
	for _, k := range strictyaml.Keys(was.Type()) {
		a, b := was.FieldByIndex(k.Index), is.FieldByIndex(k.Index)
		name := path + k.Name
		switch {
		case strictyaml.Written(a) == strictyaml.Written(b):
		case name == "roles":
			out = append(out, changedRoles(a.Interface().([]Role), b.Interface().([]Role))...)
		case path == "" && a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
			out = append(out, changedBelow(a.Elem(), b.Elem(), name+".")...)
		default:
			out = append(out, name)
		}
	}
	return out
}

func changedRoles(was, is []Role) []string {
	text := func(list []Role) map[string]string {
		out := map[string]string{}
		for _, r := range list {
			out[r.Role] = strictyaml.Written(reflect.ValueOf(r))
		}
		return out
	}
	a, b := text(was), text(is)
	var out []string
	for _, r := range slices.Concat(was, is) {
		if name := "roles." + r.Role; a[r.Role] != b[r.Role] && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
