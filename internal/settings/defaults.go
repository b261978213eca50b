package settings

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/alecthomas/kong"
)

// Fill gives every field of settings that is zero the default of its flag, which its tag alone
// says, but for those with the tag zero:"keep": of them 0 is a value. settings is a pointer to a
// struct of kong fields.
func Fill(settings any) {
	into := reflect.ValueOf(settings).Elem()
	from := defaultsOf(into.Type())
	for i := range into.NumField() {
		if f := into.Type().Field(i); f.IsExported() && into.Field(i).IsZero() && f.Tag.Get("zero") != "keep" {
			into.Field(i).Set(own(from.Field(i)))
		}
	}
}

var defaults sync.Map // of settings by their type

// defaultsOf returns settings of a type as they are without any flag.
func defaultsOf(t reflect.Type) reflect.Value {
	if v, ok := defaults.Load(t); ok {
		return v.(reflect.Value)
	}
	v := reflect.New(t)
	if err := kong.ApplyDefaults(v.Interface()); err != nil {
		// a fault of the program
		panic(fmt.Sprintf("settings: a default of %v is wrong: %v", t, err))
	}
	defaults.Store(t, v.Elem())
	return v.Elem()
}

// own returns a value that shares nothing with v.
func own(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Slice || v.IsNil() {
		return v
	}
	return reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v)
}

// Default returns settings as they are without any flag.
func Default[T any]() (t T) {
	reflect.ValueOf(&t).Elem().Set(defaultsOf(reflect.TypeFor[T]()))
	return t
}
