package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/promise"
)

const (
	subscribers = 200
	topics      = 4
	// pace of the crowd's messages: each goes to every subscriber.
	pace = 100 * time.Millisecond
	room = "room/kube"
)

// crowd are subscribers of the Go client, each with a session, and what test/promise plays beside
// them.
type crowd struct {
	play *promise.Play
	all  []*member
	// quiet ends publishing, and published says how it ended.
	quiet     context.CancelFunc
	published chan error

	mu sync.Mutex
	// answered is the last seq of each topic, slowest the longest that a message waited for its
	// answer.
	answered map[string]uint64
	slowest  time.Duration
	kills    map[string][]time.Time
	faults   []error
	// away are connections that ended with GoAway.
	away int
}

// member is one subscriber.
type member struct {
	sub *pushmesh.Subscriber
	mu  sync.Mutex
	// had are the seqs of each topic that came.
	had map[string]map[uint64]bool
}

// gather has everybody subscribe, and begins to publish.
func (r *release) gather(ctx context.Context) (*crowd, error) {
	c := &crowd{answered: map[string]uint64{}, kills: map[string][]time.Time{}, published: make(chan error, 1)}
	for i := range subscribers {
		m, err := c.join(fmt.Sprintf("kube-%d", i))
		if err != nil {
			return nil, err
		}
		c.all = append(c.all, m)
		in, err := m.sub.Start(room+"/+", m.handle, pushmesh.FromSession(), pushmesh.WithAck())
		if err == nil {
			err = in.Ready(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("subscriber %d: %w", i, err)
		}
	}
	c.play = &promise.Play{
		Routers: []string{r.router}, Edges: []string{door()}, Seed: uint64(time.Now().Unix()), Rate: 20, Lives: 20 * time.Second,
		Logf:  func(format string, args ...any) { say(format, args...) },
		Known: r.known, Killed: c.killings,
	}
	if err := c.play.Start(ctx); err != nil {
		return nil, err
	}
	publish, quiet := context.WithCancel(ctx)
	c.quiet = quiet
	go func() { c.published <- c.publish(publish, r.router) }()
	return c, nil
}

func (c *crowd) join(name string) (*member, error) {
	m := &member{had: map[string]map[uint64]bool{}}
	var err error
	m.sub, err = pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: []string{door()}, ClientID: name, Session: "s", Agent: "kube-test",
		OnGap: func(g pushmesh.Gap) {
			if g.Missed > 0 {
				c.fault(fmt.Errorf("%s: %d messages of %s are lost: %s", name, g.Missed, g.Topic, g.Code))
			}
		},
		OnDisconnect: func(err error) { c.ended(name, err) },
	})
	return m, err
}

func (m *member) handle(_ context.Context, d *pushmesh.Delivery) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.had[d.Topic] == nil {
		m.had[d.Topic] = map[uint64]bool{}
	}
	m.had[d.Topic][d.Seq] = true
	return nil
}

func (c *crowd) fault(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) < 20 {
		c.faults = append(c.faults, err)
	}
}

// ended is told how a connection ended: an edge that stops as planned says GoAway.
func (c *crowd) ended(name string, err error) {
	c.mu.Lock()
	planned, killed := pushmesh.CodeOf(err) == pushmesh.CodeDraining, len(c.kills) > 0
	if planned {
		c.away++
	}
	c.mu.Unlock()
	if !planned && !killed {
		c.fault(fmt.Errorf("%s: the connection ended without GoAway: %w", name, err))
	}
}

// killed notes that an edge is killed now, whose connections just break.
func (c *crowd) killed(edge string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kills[edge] = append(c.kills[edge], time.Now())
}

func (c *crowd) killings() map[string][]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kills
}

// publish sends to one topic after the other until ctx ends.
func (c *crowd) publish(ctx context.Context, router string) (err error) {
	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{router}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing.Close(p)) }()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		topic, at := fmt.Sprintf("%s/%d", room, i%topics), time.Now()
		// It is tried again until it is taken.
		res, err := p.Publish(context.WithoutCancel(ctx), pushmesh.Message{Topic: topic, Payload: []byte(strconv.Itoa(i))})
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		c.mu.Lock()
		if want := c.answered[topic] + 1; res.Seq != want {
			err = fmt.Errorf("%s: message %d is number %d, not %d", topic, i, res.Seq, want)
		}
		c.answered[topic], c.slowest = res.Seq, max(c.slowest, time.Since(at))
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// back waits until every subscriber is connected and has what was published until now.
func (c *crowd) back(ctx context.Context) error {
	c.mu.Lock()
	want := map[string]uint64{}
	for topic, n := range c.answered {
		want[topic] = n
	}
	c.mu.Unlock()
	err := await(ctx, "everybody is connected and has everything", func(context.Context) error {
		for i, m := range c.all {
			if !m.sub.Stats().Connected {
				return fmt.Errorf("subscriber %d is not connected", i)
			}
			if err := m.has(want); err != nil {
				return fmt.Errorf("subscriber %d: %w", i, err)
			}
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	var connects uint64
	for _, m := range c.all {
		connects += m.sub.Stats().Connects
	}
	offered, answered := c.play.Offered()
	say("%d subscribers are connected, with %d connections so far, of which %d ended with GoAway; the slowest answer took %v; the play has %d of %d answers",
		len(c.all), connects, c.away, c.slowest.Round(time.Millisecond), answered, offered)
	c.slowest = 0
	return errors.Join(append(c.faults, err)...)
}

// has says what a member lacks of the first so many messages of each topic.
func (m *member) has(want map[string]uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for topic, n := range want {
		for seq := uint64(1); seq <= n; seq++ {
			if !m.had[topic][seq] {
				return fmt.Errorf("number %d of %s did not come", seq, topic)
			}
		}
	}
	return nil
}

// moved is how many connections have ended with GoAway.
func (c *crowd) moved() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away
}

// judge ends the traffic, and checks that nothing is missing.
func (c *crowd) judge(ctx context.Context) error {
	c.quiet()
	if err := <-c.published; err != nil {
		return err
	}
	if err := c.back(ctx); err != nil {
		return err
	}
	history, err := c.play.End(ctx)
	if err != nil {
		return err
	}
	verdict := promise.Judge(history)
	say("the play: %s", verdict)
	if !verdict.OK() {
		return fmt.Errorf("promises are broken: %v", verdict.Breaches)
	}
	for _, m := range c.all {
		if err := closing.Close(m.sub); err != nil {
			return err
		}
	}
	return nil
}

// known waits until every pod goes by that version of the namespaces.
func (r *release) known(ctx context.Context, version uint64) error {
	return await(ctx, fmt.Sprintf("namespaces of version %d are known", version), func(ctx context.Context) error {
		for tier, port := range map[string]int{"edge": 7480, "router": 7481, "store": 7483} {
			out, err := r.kubectl(ctx, "get pods -l app.kubernetes.io/component=%s -o jsonpath={.items[*].status.podIP}", tier)
			if err != nil {
				return err
			}
			for _, ip := range strings.Fields(out) {
				got, err := metric(ctx, fmt.Sprintf("http://%s:%d/metrics", ip, port), "pushmesh_"+tier+"_namespaces_version")
				if err != nil || got < version {
					return fmt.Errorf("%s at %s knows version %d: %w", tier, ip, got, err)
				}
			}
		}
		return nil
	})
}

// metric is the value of one, by its name with its labels.
func metric(ctx context.Context, url, name string) (uint64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return uint64(f), err
		}
	}
	return 0, fmt.Errorf("%s has no %s", url, name)
}
