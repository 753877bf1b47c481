package strictyaml

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// moreFlags marks flags that --help lists under a heading of their own.
const moreFlags = "understudy_more"

// Bind makes a flag of each setting of a struct that has one value, or only of the settings that are named: the flag's
// name, default and help are those of the setting. Lists get a flag only when a "flag" tag names it.
func Bind(fs *pflag.FlagSet, v any, only ...string) {
	s := reflect.ValueOf(v).Elem()
	for _, k := range Keys(s.Type()) {
		if k.Flag == "-" || len(only) > 0 && !slices.Contains(only, k.Name) {
			continue
		}
		f := s.FieldByIndex(k.Index)
		if !bind(fs, k, f) {
			continue
		}
		MarkKey(fs, k.Flag, v, k.Name)
		if k.More {
			More(fs, k.Flag)
		}
		if k.FlagWas != "" {
			Renamed(fs, k.FlagWas, k.Flag)
		}
	}
}

// keyOfFlag names the setting that a flag is: the type of the struct, and the key.
const keyOfFlag = "understudy_key"

// MarkKey says that a flag, which was made otherwise, is a setting of a struct, as Bind does of the flags that it makes.
func MarkKey(fs *pflag.FlagSet, flag string, v any, key string) {
	if err := fs.SetAnnotation(flag, keyOfFlag, []string{reflect.TypeOf(v).Elem().String(), key}); err != nil {
		panic(err) // there is no such flag
	}
}

// FlagIn returns the flag that is the key, or names the file of its value; nil without one.
func (k EnvKey) FlagIn(fs *pflag.FlagSet) (found *pflag.Flag) {
	if fs == nil {
		return nil
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if of := f.Annotations[keyOfFlag]; len(of) > 0 && of[0] == k.within.String() && (of[1] == k.key.Name || of[1] == k.key.Name+"_file") {
			found = f
		}
	})
	return found
}

// bind makes the flag, if the setting is of a kind that a flag can set.
func bind(fs *pflag.FlagSet, k Key, f reflect.Value) bool {
	if !isScalar(k.Of) && (k.Of.Kind() != reflect.Pointer || !isScalar(k.Of.Elem())) {
		list, ok := f.Addr().Interface().(*[]string)
		if ok {
			fs.StringArrayVar(list, k.Flag, nil, k.flagHelp())
		}
		return ok
	}
	f = derefOrNew(f) // an optional number or switch is there, with its default
	if k.Default != "" {
		if err := set(f, k.Default); err != nil {
			panic("the default of --" + k.Flag + ": " + err.Error())
		}
	}
	switch p := f.Addr().Interface().(type) {
	case *string:
		fs.StringVar(p, k.Flag, *p, k.flagHelp())
	case *bool:
		fs.BoolVar(p, k.Flag, *p, k.flagHelp())
	case *int:
		fs.IntVar(p, k.Flag, *p, k.flagHelp())
	case *int64:
		fs.Int64Var(p, k.Flag, *p, k.flagHelp())
	case *float64:
		fs.Float64Var(p, k.Flag, *p, k.flagHelp())
	case *time.Duration:
		fs.DurationVar(p, k.Flag, *p, k.flagHelp())
	case pflag.Value:
		fs.Var(p, k.Flag, k.flagHelp())
	default:
		panic(fmt.Sprintf("--%s is of a kind that no flag has: %T", k.Flag, p))
	}
	return true
}

// flagHelp is the help with the name of the value as pflag wants it.
func (k Key) flagHelp() string { return placeholder.ReplaceAllString(k.Help, "`$1`") }

// Renamed lets a flag be given by its old name, too, for one more version. Nothing shows that name, and whoever asks
// whether the flag was given need not know it.
func Renamed(fs *pflag.FlagSet, old, name string) {
	before := fs.GetNormalizeFunc()
	fs.SetNormalizeFunc(func(fs *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == old {
			given = name
		}
		return before(fs, given)
	})
}

// More marks flags that few people need.
func More(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := fs.SetAnnotation(name, moreFlags, []string{strconv.FormatBool(true)}); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// SplitFlags returns the flags that --help shows first, and those that it shows under a heading of their own.
func SplitFlags(fs *pflag.FlagSet) (first, more *pflag.FlagSet) {
	first, more = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	first.SortFlags, more.SortFlags = fs.SortFlags, fs.SortFlags
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[moreFlags] != nil {
			more.AddFlag(f)
		} else {
			first.AddFlag(f)
		}
	})
	return first, more
}
