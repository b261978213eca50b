package edge

import (
	"errors"
	"fmt"

	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
	"github.com/pushmesh/pushmesh/services/edge/internal/websocket/upgrade"
)

// web says which requests become WebSockets. door may be nil, for a check.
func (s *Settings) web(door *admission.Door) (*upgrade.Policy, error) {
	origins, err := upgrade.ParseOrigins(s.WebSocketOrigins)
	if err != nil {
		return nil, fmt.Errorf("--websocket-origins: %w", err)
	}
	p := &upgrade.Policy{Origins: origins, QueryToken: s.WebSocketQueryToken, Cookies: s.WebSocketCookies}
	if door != nil {
		p.Forwards = door.Forwards
	}
	return p, nil
}

// CheckOrigins reports what is wrong with a list for Settings.WebSocketOrigins.
func CheckOrigins(origins []string) error {
	_, err := (&Settings{WebSocketOrigins: origins}).web(nil)
	return err
}

// checkWeb finds faults in what WebSockets need.
func (s *Settings) checkWeb() error {
	p, err := s.web(nil)
	switch {
	case err != nil:
		return err
	case s.WebSocketCookies && s.ConnectHook == "":
		return errors.New("--websocket-cookies needs --connect-hook: nobody else reads cookies")
	case s.WebSocketCookies && !p.Origins.Listed():
		return errors.New("--websocket-cookies needs --websocket-origins, each by name: else any page could act for its visitor")
	}
	return nil
}
