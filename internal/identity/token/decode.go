package token

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a token; they are looked at before anything is parsed, or while it is.
const (
	MaxToken   = 8 << 10 // bytes of a token
	MaxClaims  = 64      // members of an object of a token
	MaxNesting = 8       // objects and arrays in each other, the outermost included
)

// maxName is the most bytes of names that a token has for its key, its issuer and itself.
const maxName = 255

// parsed is a token that was read and not believed yet.
type parsed struct {
	alg, keyID string
	claims     map[string]json.RawMessage
}

// parse reads a token: three parts, of which two are JSON. Its errors hold nothing of the token.
func parse(text string) (p parsed, err error) {
	parts := strings.SplitN(text, ".", 4)
	if len(parts) != 3 {
		return p, errors.New("the token is not a signed JWT in compact form, which has three parts")
	}
	for i, part := range parts {
		// jwx, which checks the signature, is given the same bytes, and must not read them
		// otherwise
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil || strings.ContainsAny(part, "\r\n") {
			return p, fmt.Errorf("part %d of the token is not base64url without padding", i+1)
		}
	}
	header, err := object(parts[0])
	if err != nil {
		return p, fmt.Errorf("the token's header %w", err)
	}
	if err := p.readHeader(header); err != nil {
		return p, err
	}
	if p.claims, err = object(parts[1]); err != nil {
		return p, fmt.Errorf("the token's claims %w", err)
	}
	return p, nil
}

// readHeader takes what is used of a header. What would name a key of the token's own choice (jwk,
// jku, x5u, x5c) is not looked at.
func (p *parsed) readHeader(header map[string]json.RawMessage) (err error) {
	for _, name := range []string{"crit", "b64", "zip", "enc", "cty"} {
		if _, there := header[name]; there {
			return fmt.Errorf("the token's header has %s, which is not supported", name)
		}
	}
	if p.alg, err = text(header, "alg"); err != nil || p.alg == "" {
		return errors.New("the token's header has no alg that is a string")
	}
	if p.keyID, err = text(header, "kid"); err != nil {
		return fmt.Errorf("the token's header: %w", err)
	}
	typ, err := text(header, "typ")
	typ = strings.TrimPrefix(strings.ToLower(typ), "application/")
	if err != nil || !slices.Contains([]string{"", "jwt", "at+jwt"}, typ) {
		return errors.New("the token's header has a typ that is not JWT or at+jwt: it is a token for something else")
	}
	return nil
}

// object reads a part of a token. Members are found by their exact names: encoding/json alone would
// take SUB for sub.
func object(part string) (map[string]json.RawMessage, error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return nil, errors.New("are not base64url")
	}
	return Members(data, MaxClaims, MaxNesting)
}

var errNotObject = errors.New("must be one JSON object in UTF-8")

// Members reads a JSON object within bounds: the most members of an object, and objects and arrays
// in each other. An object with two members of one name is refused wherever it is, as readers
// disagree about which of them holds.
func Members(data []byte, most, nesting int) (map[string]json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, errNotObject
	}
	if err := scan(data, most, nesting); err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || all == nil {
		return nil, errNotObject
	}
	return all, nil
}

// level is an object or array that a scan is in.
type level struct {
	names map[string]struct{} // nil: an array
	value bool                // the next string is a member's value, not its name
}

func scan(data []byte, most, nesting int) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var open []level
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) && len(open) == 0 {
			return nil
		}
		if err != nil {
			return errNotObject
		}
		var in *level
		if len(open) > 0 {
			in = &open[len(open)-1]
		}
		delim, isDelim := token.(json.Delim)
		name, isText := token.(string)
		switch {
		case isDelim && (delim == '}' || delim == ']'):
			open = open[:len(open)-1]
			continue
		case in == nil && delim != '{':
			return errNotObject
		case in != nil && in.names != nil && !in.value && isText:
			if _, twice := in.names[name]; twice {
				return errors.New("have two members of one name")
			}
			if in.names[name] = struct{}{}; len(in.names) > most {
				return fmt.Errorf("have more than %d members", most)
			}
			in.value = true
			continue
		}
		if in != nil {
			in.value = false
		}
		if !isDelim {
			continue
		}
		if len(open) == nesting {
			return fmt.Errorf("are nested more than %d deep", nesting)
		}
		next := level{}
		if delim == '{' {
			next.names = map[string]struct{}{}
		}
		open = append(open, next)
	}
}

// text is a member that is a string; "" where it is not there.
func text(in map[string]json.RawMessage, name string) (s string, err error) {
	raw, there := in[name]
	if !there {
		return "", nil
	}
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", fmt.Errorf("%s must be a string", name)
	}
	if len(s) > maxName {
		return "", fmt.Errorf("%s is %d bytes long, %d at most", name, len(s), maxName)
	}
	return s, nil
}

// texts is a member that is a string or an array of strings.
func texts(in map[string]json.RawMessage, name string, most int) (all []string, err error) {
	raw, there := in[name]
	if !there {
		return nil, nil
	}
	if raw[0] == '"' {
		one, err := text(in, name)
		return []string{one}, err
	}
	var values []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &values) != nil {
		return nil, fmt.Errorf("%s must be a string or an array of strings", name)
	}
	if len(values) > most {
		return nil, fmt.Errorf("%s has %d values, %d at most", name, len(values), most)
	}
	for _, value := range values {
		one, err := text(map[string]json.RawMessage{name: value}, name)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
