package pushmesh

import (
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/internal/caller"
	"github.com/pushmesh/pushmesh/client/internal/link"
	"github.com/pushmesh/pushmesh/client/internal/reconnect"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// steady is how long a connection must have lived for the next backoff to begin anew.
const steady = 2 * time.Second

// goAway is the edge's wish that the connection be made again elsewhere.
type goAway struct {
	why       *Error
	addresses []string
	due       time.Time // when to come back; zero: whenever
}

func (g *goAway) Error() string { return "told to go away: " + g.why.Error() }
func (g *goAway) Unwrap() error { return g.why }

func (g *goAway) places() (places []reconnect.Place) {
	for _, addr := range g.addresses {
		places = append(places, reconnect.Place{Addr: addr, Name: addr})
	}
	return places
}

func decodeGoAway(body []byte) *goAway {
	var m wirev1.GoAway
	if proto.Unmarshal(body, &m) != nil {
		return &goAway{why: &Error{Code: CodeDraining}}
	}
	g := &goAway{why: &Error{Code: Code(m.GetCode()), Message: m.GetReason()}, addresses: m.GetAddresses()}
	if ms := m.GetReconnectAfterMs(); ms > 0 {
		g.why.RetryAfter = time.Duration(ms) * time.Millisecond
		g.due = time.Now().Add(g.why.RetryAfter)
	}
	return g
}

// run connects, reads until the connection ends, and does so again.
func (s *Subscriber) run() {
	defer close(s.ended)
	s.mu.Lock()
	s.inside.Reader = caller.ID()
	s.mu.Unlock()
	route := reconnect.NewRoute(s.cfg.Addrs, s.cfg.lookup)
	wait := reconnect.Backoff{Low: s.cfg.MinBackoff, High: s.cfg.MaxBackoff}
	var ghost reconnect.Ghost
	expired := false // a Hello was refused for its token's time since the last Welcome
	for s.ctx.Err() == nil {
		l, err := s.open(s.ctx, route.Next(s.ctx))
		welcomed := err == nil
		if err != nil {
			s.failed(err)
			s.tell("pushmesh: no connection", s.cfg.OnConnectFailed, err)
		}
		if welcomed {
			began := time.Now()
			expired = false
			route.Found()
			err = s.serve(l)
			s.failed(err)
			if time.Since(began) >= steady {
				wait.Reset()
			}
			s.tell("pushmesh: disconnected", s.cfg.OnDisconnect, err)
		}
		var away *goAway
		if errors.As(err, &away) {
			route.Detour(away.places()...)
		}
		refusal := s.final(err)
		if !welcomed && CodeOf(err) == CodeTokenExpired {
			if expired {
				errors.As(err, &refusal)
			}
			expired = true
		}
		if !welcomed {
			if errors.As(err, new(*link.Unanswered)) {
				ghost.Left(time.Now())
			}
			if refusal == nil && !route.Round() && !asked(err) {
				continue // another address may do at once
			}
		}
		if refusal != nil && (refusal.Code != CodeSessionTakenOver || !ghost.Took(time.Now())) {
			s.cfg.Logger.Error("pushmesh: refused for good", "error", refusal)
			s.finish(refusal)
			return
		}
		reconnect.Pause(s.ctx, waitAfter(&wait, err))
	}
	s.finish(nil)
}

// tell tells how an attempt to connect, or a connection, ended.
func (s *Subscriber) tell(text string, f func(error), err error) {
	if s.ctx.Err() != nil {
		return // it is closed
	}
	s.cfg.Logger.Warn(text, "error", err)
	if f != nil {
		s.tellProgram(func() { f(err) })
	}
}

// waitAfter is how long to wait after err: what the edge asked for, if it did.
func waitAfter(wait *reconnect.Backoff, err error) time.Duration {
	var e *Error
	if !errors.As(err, &e) {
		return wait.Next(0)
	}
	d := wait.Next(e.RetryAfter)
	var away *goAway
	if errors.As(err, &away) && !away.due.IsZero() {
		return max(time.Until(away.due), 0) // jittered by the edge already
	}
	return d
}

// serve owns one connection until it ends.
func (s *Subscriber) serve(l *link.Conn) error {
	l.StartPings()
	s.connected(l)
	if s.ctx.Err() != nil {
		_ = l.ReadUntil(time.Now()) // Close came before the link was known to it
	}
	w := l.Welcome()
	s.cfg.Logger.Info("pushmesh: connected", "edge", w.GetEdge(), "client_id", w.GetClientId(), "connection", w.GetConnectionId())
	if s.cfg.OnConnect != nil {
		s.tellProgram(func() {
			s.cfg.OnConnect(Connection{
				ID: w.GetConnectionId(), Edge: w.GetEdge(), ClientID: w.GetClientId(), User: w.GetUser(),
				Resumed: w.GetResumed(), Features: w.GetFeatures(),
			})
		})
	}
	err := l.Flush()
	if err == nil {
		err = s.read(l)
	}
	s.disconnected(l, errors.As(err, new(*goAway)))
	return err
}

// connected puts a new connection in place of the last one. Subscriptions of which a handler still
// has a durable message of the last connection are asked for again once it has returned, so that
// what is asked for is exactly what no handler has dealt with. Nothing else waits for the handler:
// it may itself be waiting for an answer on this connection.
func (s *Subscriber) connected(l *link.Conn) {
	s.mu.Lock()
	defer s.unlock()
	s.stats.Connects++
	s.link, s.client, s.failure = l, l.Welcome().GetClientId(), nil
	for _, sub := range s.subs {
		if s.handled(sub) {
			s.resuming = append(s.resuming, sub)
			continue
		}
		s.sendSubscribe(l, sub)
	}
	s.linkChanged()
	for _, r := range s.rooms {
		r.Connected(l)
	}
}

// handled reports whether a handler has a durable message that a resume of the subscription would
// ask for.
func (s *Subscriber) handled(sub *Subscription) bool {
	return s.handling && sub.active && slices.ContainsFunc(s.involved, func(h holder) bool { return h.sub == sub })
}

// resume asks again for what waited for the handler. Called with s.mu held, which it lets go to
// write.
func (s *Subscriber) resume() {
	l := s.link
	if l == nil || len(s.resuming) == 0 {
		return
	}
	for _, sub := range s.resuming {
		if !sub.ending() && !sub.sent {
			s.sendSubscribe(l, sub)
		}
	}
	s.resuming = nil
	s.unlock()
	_ = l.Flush() // a failed write closes the connection; the reader reports it
	s.mu.Lock()
}

// disconnected takes a connection that ended out of everything.
func (s *Subscriber) disconnected(l *link.Conn, planned bool) {
	closing := s.ctx.Err() != nil
	if closing {
		s.letGo(nil)
		s.waitHandlers()
	}
	if closing || planned {
		s.mu.Lock()
		s.flushAcks()
		s.mu.Unlock()
		l.HangUp(250 * time.Millisecond)
	}
	l.Close()
	s.mu.Lock()
	defer s.unlock()
	s.link, s.resuming = nil, nil
	s.flushAcks()
	s.queue.Keep(item.passing) // what is durable comes again
	s.release()
	for _, sub := range s.subs {
		sub.sent = false
		if sub.unasked != nil {
			sub.cutOff()
		}
	}
	s.linkChanged()
	for _, r := range s.rooms {
		r.Broken()
	}
}

// letGo answers everybody who waits for the mesh, handlers among them: the subscriber ends, and no
// answer comes any more.
func (s *Subscriber) letGo(err error) {
	s.mu.Lock()
	defer s.unlock()
	if s.err == nil {
		s.err = err
	}
	s.closing = true
	for _, sub := range s.subs {
		switch {
		case sub.unasked != nil:
			sub.cutOff()
		case !sub.active:
			sub.end(s.endError())
		}
	}
	s.linkChanged()
	for _, r := range s.rooms {
		r.End(s.endError())
		r.Broken()
	}
	s.changed.Broadcast()
}

// handlersWithin is how long handlers may go on when the mesh has refused the subscriber for good.
const handlersWithin = 5 * time.Second

// waitHandlers gives the handlers that run time to return: as long as Close's context, or
// handlersWithin where nobody closes.
func (s *Subscriber) waitHandlers() {
	if s.ctx.Err() == nil {
		defer time.AfterFunc(handlersWithin, s.abandon).Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for (s.dispatching || s.working > 0) && !s.abandoned {
		s.changed.Wait()
	}
}

// finish ends every subscription and publish.
func (s *Subscriber) finish(err error) {
	s.letGo(err)
	s.waitHandlers()
	s.handlerCancel()
	s.cancel()
	s.mu.Lock()
	defer s.unlock()
	if s.flushTimer != nil {
		s.flushTimer.Stop()
	}
	for _, sub := range s.subs {
		sub.end(s.endError())
	}
	s.changed.Broadcast()
}

// final is the refusal in err that trying again can't help; nil where it can, as it can with
// another token.
func (s *Subscriber) final(err error) *Error {
	var e *Error
	if !errors.As(err, &e) || e.Retryable() || e.Code == CodeOK {
		return nil
	}
	if e.Code == CodeTokenExpired && s.cfg.Token != nil {
		return nil
	}
	return e
}

// asked reports whether the mesh named a time to come back. What an edge that has too much to do
// names holds for that edge alone.
func asked(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.RetryAfter > 0 && e.Code != CodeOverloaded
}
