package assignment

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// What Subscribe.group_key may be, besides empty.
const (
	KeyTopic  = "topic"
	KeyHeader = "header:" // and the header's name
)

// maxHeader bounds a header's name.
const maxHeader = 255

// CheckKey says what is wrong with a group_key.
func CheckKey(k string) error {
	if k == "" || k == KeyTopic {
		return nil
	}
	if name, ok := strings.CutPrefix(k, KeyHeader); ok && name != "" && len(name) <= maxHeader {
		return nil
	}
	return errors.New(`group_key must be "", "topic" or "header:NAME"`)
}

// Keys finds the keys of messages.
type Keys struct {
	sticky bool
	header string // "": the topic
}

// KeysOf a group_key that passed CheckKey.
func KeysOf(k string) Keys {
	name, _ := strings.CutPrefix(k, KeyHeader)
	if name == k {
		name = ""
	}
	return Keys{k != "", name}
}

// Of a message: "" for all where the group is not sticky. Messages without the header go by their
// topic.
func (k Keys) Of(m *exchange.Message) string {
	switch {
	case !k.sticky:
		return ""
	case k.header == "":
		return m.Topic
	}
	if v, ok := header(m.Body(), k.header); ok {
		return "=" + v
	}
	return m.Topic
}

// headersField is the number of Message.headers, a map: entries with the name as 1 and the value as
// 2.
const headersField = 6

// header finds a header's value in the encoded fields of a message.
func header(body []byte, name string) (value string, found bool) {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return "", false
		}
		body = body[n:]
		if num != headersField || typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, body); n < 0 {
				return "", false
			}
			body = body[n:]
			continue
		}
		entry, n := protowire.ConsumeBytes(body)
		if n < 0 {
			return "", false
		}
		body = body[n:]
		if k, v, ok := pair(entry); ok && k == name {
			value, found = v, true // the last one counts, as in any map
		}
	}
	return value, found
}

func pair(entry []byte) (k, v string, ok bool) {
	for len(entry) > 0 {
		num, typ, n := protowire.ConsumeTag(entry)
		if n < 0 {
			return "", "", false
		}
		entry = entry[n:]
		if typ != protowire.BytesType || num > 2 {
			if n = protowire.ConsumeFieldValue(num, typ, entry); n < 0 {
				return "", "", false
			}
			entry = entry[n:]
			continue
		}
		s, n := protowire.ConsumeString(entry)
		if n < 0 {
			return "", "", false
		}
		entry = entry[n:]
		if num == 1 {
			k = s
		} else {
			v = s
		}
	}
	return k, v, true
}
