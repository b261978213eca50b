// Package docs holds the tests that keep docs/ true to the schemas.
package docs

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const protocol = "../../docs/protocol.md"

var (
	frameHeading = regexp.MustCompile(`^### (0x[0-9A-F]{2}) (\w+), from the (client|edge)$`)
	partHeading  = regexp.MustCompile("^`(\\w+)`:")
	fieldRow     = regexp.MustCompile(`^\| (\d+) \| (\w+) \| ([^|]+) \| [^|]+ \|$`)
	codeRow      = regexp.MustCompile(`^\| (\d+) \| ([A-Z_]+) \| [^|]+ \|$`)
)

// tables reads the field tables ("number name type" by message) and the frame types of the page.
func tables(t *testing.T) (fields map[string][]string, types map[string]int64, codes map[string]int64) {
	t.Helper()
	page, err := os.ReadFile(protocol)
	if err != nil {
		t.Fatal(err)
	}
	fields, types, codes = map[string][]string{}, map[string]int64{}, map[string]int64{}
	message := ""
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSuffix(line, "\n")
		if m := frameHeading.FindStringSubmatch(line); m != nil {
			message = m[2]
			types[message], err = strconv.ParseInt(m[1], 0, 64)
		} else if m := partHeading.FindStringSubmatch(line); m != nil {
			message = m[1]
		} else if m := fieldRow.FindStringSubmatch(line); m != nil {
			fields[message] = append(fields[message], fmt.Sprintf("%s %s %s", m[1], m[2], m[3]))
		} else if m := codeRow.FindStringSubmatch(line); m != nil {
			codes[m[2]], err = strconv.ParseInt(m[1], 10, 32)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return fields, types, codes
}

// typeOf writes a field's type as the page does.
func typeOf(f protoreflect.FieldDescriptor) string {
	name := f.Kind().String()
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s, %s>", f.MapKey().Kind(), f.MapValue().Kind())
	case f.Kind() == protoreflect.MessageKind:
		name = string(f.Message().Name())
	case f.Kind() == protoreflect.EnumKind:
		name = string(f.Enum().Name())
	}
	if f.IsList() {
		return "repeated " + name
	}
	return name
}

func schema(messages protoreflect.MessageDescriptors, into map[string][]string) {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			into[string(m.Name())] = append(into[string(m.Name())], fmt.Sprintf("%d %s %s", f.Number(), f.Name(), typeOf(f)))
		}
		schema(m.Messages(), into)
	}
}

func TestProtocolPageHasEveryField(t *testing.T) {
	got, _, _ := tables(t)
	want := map[string][]string{}
	schema(wirev1.File_pushmesh_wire_v1_wire_proto.Messages(), want)
	for _, message := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(got[message], want[message]) {
			t.Errorf("%s: the page says\n%s\nthe schema\n%s", message, strings.Join(got[message], "\n"), strings.Join(want[message], "\n"))
		}
		delete(got, message)
	}
	for message := range got {
		t.Errorf("%s is on the page and not in the schema", message)
	}
}

func TestProtocolPageHasEveryFrameType(t *testing.T) {
	_, got, _ := tables(t)
	want := map[string]int64{}
	for name, number := range wirev1.FrameType_value {
		if number > 0 {
			want[strings.ReplaceAll(strings.TrimPrefix(name, "FRAME_TYPE_"), "_", "")] = int64(number)
		}
	}
	upper := map[string]int64{}
	for name, number := range got {
		upper[strings.ToUpper(name)] = number
	}
	if !maps.Equal(upper, want) {
		t.Errorf("the page says\n%v\nthe schema\n%v", upper, want)
	}
}

func TestProtocolPageHasEveryCode(t *testing.T) {
	_, _, got := tables(t)
	want := map[string]int64{}
	for name, number := range wirev1.Code_value {
		want[strings.TrimPrefix(name, "CODE_")] = int64(number)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the page says\n%v\nthe schema\n%v", got, want)
	}
}
