package cmdline

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// checkDurations finds durations that are no text, for which protojson's error names neither the
// field nor how to write it. What is no JSON is left to protojson.
func checkDurations(text []byte, of protoreflect.MessageDescriptor) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return nil
	}
	for i := range of.Fields().Len() {
		f := of.Fields().Get(i)
		for _, name := range []string{f.JSONName(), string(f.Name())} {
			value, there := fields[name]
			if !there || f.Message() == nil || f.IsMap() || f.IsList() {
				continue
			}
			if f.Message().FullName() != "google.protobuf.Duration" {
				if err := checkDurations(value, f.Message()); err != nil {
					return fmt.Errorf("%s.%w", name, err)
				}
				continue
			}
			if value[0] != '"' && string(value) != "null" {
				return fmt.Errorf(`%s: %s is not a duration: write it like "20s"`, name, value)
			}
		}
	}
	return nil
}

// ReadProto reads a message from a file of JSON.
func ReadProto(path string, m proto.Message) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := checkDurations(text, m.ProtoReflect().Descriptor()); err != nil {
		return Usage("%s: %w", path, err)
	}
	if err := protojson.Unmarshal(text, m); err != nil {
		return Usage("%s: %s", path, strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "))
	}
	return nil
}
