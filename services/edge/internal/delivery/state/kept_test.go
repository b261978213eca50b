package state

import (
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/pushmesh/pushmesh/services/edge/internal/gaps"
)

// fieldsOf gives each field of a struct a value that is not zero, one at a time.
func fieldsOf(t *testing.T, of any, but []string, look func(name string)) {
	t.Helper()
	v := reflect.ValueOf(of).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if slices.Contains(but, name) {
			continue
		}
		f := reflect.NewAt(v.Field(i).Type(), unsafe.Pointer(v.Field(i).UnsafeAddr())).Elem()
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Uint32, reflect.Uint64, reflect.Uint16, reflect.Uint8:
			f.SetUint(1)
		case reflect.Int64, reflect.Int, reflect.Int32:
			f.SetInt(1)
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Struct:
			f.Set(reflect.ValueOf(gaps.Gap{To: 1}))
		default:
			t.Fatalf("no value of %s", name)
		}
		look(name)
		f.SetZero()
	}
}

// What few connections and positions have takes no memory of those that have none of it, and none
// of it is forgotten while a connection or a position has it.
func TestRarePartsAreThereWhileTheyAreNeeded(t *testing.T) {
	conns, tracks := &Conns{}, &Tracks{}
	c := conns.Take()
	fieldsOf(t, conns.More(c), []string{"ByRef", "GroupByID", "GroupByRef", "PublishFrom"}, func(name string) {
		// these go with ByID, Groups and Publishes
		m := c.ConnMore
		if conns.Less(c); c.ConnMore != m {
			t.Errorf("a connection's %s is forgotten", name)
			c.ConnMore = m
		}
	})
	if conns.Less(c); c.ConnMore != NoConnMore || conns.Mores.Taken() != 0 {
		t.Error("a connection that has nothing rare takes memory for it")
	}
	conns.Less(c) // is nothing
	tr := &Track{TrackMore: NoTrackMore}
	// What the others say goes with one of those that are looked at.
	fieldsOf(t, tracks.More(tr), []string{"Asked", "RangeAt", "AckTo", "AckSerial"}, func(name string) {
		m := tr.TrackMore
		if tracks.Less(tr); tr.TrackMore != m {
			t.Errorf("a position's %s is forgotten", name)
			tr.TrackMore = m
		}
	})
	for _, flag := range []*bool{&tr.Held, &tr.Reading} { // Asked says from where
		*flag = true
		if tracks.Less(tr); tr.TrackMore == NoTrackMore {
			t.Error("where a position reads on is forgotten")
		}
		*flag = false
	}
	if tracks.Less(tr); tr.TrackMore != NoTrackMore || tracks.Mores.Taken() != 0 {
		t.Error("a position that has nothing rare takes memory for it")
	}
	tracks.Less(tr) // is nothing
}
