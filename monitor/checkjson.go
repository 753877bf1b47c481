package monitor

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A check has two forms in JSON, both made from the fields of [Check]:
//
//   - As the API shows it, durations are whole milliseconds, and their names end in _ms (MarshalJSON).
//   - As stores keep it, durations are nanoseconds, their names do not, and the check's own key is "name" (MarshalStored).
//     Processes of other versions share the store, so the stored form changes by additions only.

// MarshalJSON returns the form of the API.
func (c Check) MarshalJSON() ([]byte, error) { return json.Marshal(c.form(apiForm).Interface()) }

// UnmarshalJSON reads the form of the API. A duration that is too long for a time.Duration becomes the longest
// one, which [Check.Validate] refuses.
func (c *Check) UnmarshalJSON(data []byte) error { return c.unmarshal(data, apiForm) }

// MarshalStored returns the form that stores keep.
func (c Check) MarshalStored() ([]byte, error) { return json.Marshal(c.form(storedForm).Interface()) }

// UnmarshalStored reads the form that stores keep.
func (c *Check) UnmarshalStored(data []byte) error { return c.unmarshal(data, storedForm) }

// UnmarshalStored reads the stored form of a check, with what the store adds to it.
func (s *StoredCheck) UnmarshalStored(data []byte) error {
	var added struct {
		ID, Rev int64
		Removed bool
	}
	if err := json.Unmarshal(data, &added); err != nil {
		return err
	}
	s.ID, s.Rev, s.Removed = added.ID, added.Rev, added.Removed
	return s.Check.UnmarshalStored(data)
}

// millis is a duration that is whole milliseconds in JSON.
type millis time.Duration

func (m millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(m).Milliseconds(), 10), nil
}

func (m *millis) UnmarshalJSON(data []byte) error {
	var ms int64
	if err := json.Unmarshal(data, &ms); err != nil {
		return err
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	*m = millis(time.Duration(min(max(ms, -most), most)) * time.Millisecond)
	return nil
}

// apiForm and storedForm are what becomes of a field.
func apiForm(f reflect.StructField) reflect.StructField {
	if f.Type == reflect.TypeFor[time.Duration]() {
		f.Type = reflect.TypeFor[millis]()
	}
	return f
}

func storedForm(f reflect.StructField) reflect.StructField {
	f.Tag = reflect.StructTag(strings.NewReplacer(`_ms,`, `,`, `"check"`, `"name"`).Replace(string(f.Tag)))
	return f
}

// form is a struct with the values of c, whose fields are what as makes of those of Check.
func (c Check) form(as func(reflect.StructField) reflect.StructField) reflect.Value {
	from := reflect.ValueOf(c)
	var fields []reflect.StructField
	for f := range from.Type().Fields() {
		f = as(f)
		fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
	}
	out := reflect.New(reflect.StructOf(fields)).Elem()
	for i := range fields {
		out.Field(i).Set(from.Field(i).Convert(fields[i].Type))
	}
	return out
}

func (c *Check) unmarshal(data []byte, as func(reflect.StructField) reflect.StructField) error {
	form := c.form(as)
	if err := json.Unmarshal(data, form.Addr().Interface()); err != nil {
		return err
	}
	into := reflect.ValueOf(c).Elem()
	for i := range into.NumField() {
		into.Field(i).Set(form.Field(i).Convert(into.Field(i).Type()))
	}
	return nil
}
