package websocket

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// fromText reads a frame from its JSON. A payload is kept as it was written.
func fromText(b []byte) (proto.Message, error) {
	var named map[string]json.RawMessage
	if err := json.Unmarshal(b, &named); err != nil || len(named) != 1 {
		return nil, fmt.Errorf("%.200q is no frame: %w", b, err)
	}
	for name, body := range named {
		m, err := byName(name)
		if err != nil {
			return nil, err
		}
		if msg, ok := m.(*wirev1.Message); ok {
			return msg, messageOf(msg, body)
		}
		return m, protojson.Unmarshal(body, m)
	}
	return nil, nil
}

func byName(name string) (proto.Message, error) {
	for _, m := range []struct {
		name string
		m    proto.Message
	}{
		{"welcome", &wirev1.Welcome{}},
		{"subscribed", &wirev1.Subscribed{}},
		{"message", &wirev1.Message{}},
		{"pong", &wirev1.Pong{}},
		{"published", &wirev1.Published{}},
		{"error", &wirev1.Error{}},
		{"progress", &wirev1.Progress{}},
		{"goAway", &wirev1.GoAway{}},
	} {
		if m.name == name {
			return m.m, nil
		}
	}
	return nil, fmt.Errorf("a frame called %.100q from an edge", name)
}

// messageOf has the members that the cases look at.
func messageOf(m *wirev1.Message, body []byte) error {
	var of struct {
		Topic         string
		Seq           uint64 `json:",string"`
		Payload       json.RawMessage
		PayloadBase64 []byte
	}
	if err := json.Unmarshal(body, &of); err != nil {
		return err
	}
	m.Topic, m.Seq, m.Payload = of.Topic, of.Seq, of.PayloadBase64
	if of.Payload != nil {
		m.Payload = bytes.Clone(of.Payload)
	}
	return nil
}
