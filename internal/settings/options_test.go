package settings

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/monitor"
)

// keysIn returns the keys that the fields of a struct have in a form, without the unit of durations, and those of the
// control loop after a dot.
func keysIn(t reflect.Type, form string) (keys []string) {
	for f := range t.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get(form), ",")
		if key == "" || !f.IsExported() {
			continue
		}
		keys = append(keys, strings.TrimSuffix(key, "_ms"))
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct {
			for _, inner := range keysIn(of, form) {
				keys = append(keys, key+"."+inner)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// A check has the same options in the package, in the API and in a file.
func TestCheckOptions(t *testing.T) {
	want := keysIn(reflect.TypeFor[monitor.Check](), "json")
	if diff := cmp.Diff(want, keysIn(reflect.TypeFor[apitype.Check](), "json")); diff != "" {
		t.Errorf("apitype.Check:\n%s", diff)
	}
	want[slices.Index(want, "remind")] = "repeat_interval" // JSON keeps the name that it has in the store
	slices.Sort(want)
	if diff := cmp.Diff(want, keysIn(reflect.TypeFor[Check](), "yaml")); diff != "" {
		t.Errorf("settings.Check:\n%s", diff)
	}
}

// fill sets each exported field of a struct, and of the structs in it, to a value that is not zero.
func fill(t *testing.T, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if !v.Type().Field(i).IsExported() {
			continue
		}
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		switch f.Kind() {
		case reflect.String:
			f.SetString("text of " + v.Type().Field(i).Name)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(time.Hour) + int64(i))
		case reflect.Float64:
			f.SetFloat(float64(i) + 0.5)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			f.SetMapIndex(reflect.ValueOf("name"), reflect.ValueOf("value"))
		case reflect.Struct:
			fill(t, f)
		default:
			t.Fatalf("%s.%s: a %s, which this test cannot fill", v.Type(), v.Type().Field(i).Name, f.Kind())
		}
	}
}

// No option is lost between a file and the package.
func TestCheckIsCopiedWhole(t *testing.T) {
	var e Check
	fill(t, reflect.ValueOf(&e).Elem())
	check := e.monitored()
	for f, v := range reflect.ValueOf(check).Fields() {
		if v.IsZero() {
			t.Errorf("Check.monitored drops %s", f.Name)
		}
	}
	if diff := cmp.Diff(e, CheckOf(check), cmp.AllowUnexported(Check{})); diff != "" {
		t.Errorf("CheckOf:\n%s", diff)
	}
}

// What a sink and a queue both have means the same: how the queue of the sink is delivered.
func TestSinkQueueIsCopiedWhole(t *testing.T) {
	var c Sink
	fill(t, reflect.ValueOf(&c).Elem())
	given, got := reflect.ValueOf(c), reflect.ValueOf(*c.Queue())
	shared := 0
	for f, v := range got.Fields() {
		of := given.FieldByName(f.Name)
		if !of.IsValid() || of.Type() != f.Type {
			continue // a target, or the name of the queue
		}
		shared++
		if !v.Equal(of) {
			t.Errorf("Sink.Queue: %s is %v, of a sink with %v", f.Name, v, of)
		}
	}
	if shared < 7 {
		t.Errorf("a sink and a queue share %d settings; there were 7", shared)
	}
}
