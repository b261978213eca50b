//go:build browser

package browser

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/test/procmesh"
)

// The playground of `pushmesh dev`, as its visitors use it.

// Sizes of screens.
var (
	desktop = screen{1280, 900, "light"}
	night   = screen{1280, 900, "dark"}
	phone   = screen{360, 740, "light"}
)

type screen struct {
	width, height int
	scheme        string
}

// people of the first two tabs.
var (
	here  = []string{"Ann", "Bob"}
	there = []string{"Cleo", "Dan"}
)

// watching has a page note what its policy refuses, and what it fails with.
const watching = `
window.faults = [];
addEventListener("securitypolicyviolation", (e) => faults.push("policy: " + e.violatedDirective + " " + e.blockedURI));
addEventListener("error", (e) => faults.push("error: " + e.message));
addEventListener("unhandledrejection", (e) => faults.push("rejected: " + e.reason));
window.pane = (name) => document.querySelector('[data-person="' + name + '"]');
window.press = (name, text) => [...pane(name).querySelectorAll("button")].find((b) => b.textContent.includes(text)).click();
`

// visit opens the page in a tab, and waits until its clients are connected.
func (b *browser) visit(name, url string, s screen) {
	b.T.Helper()
	b.Open(name, "about:blank")
	for _, domain := range []string{"Page", "Network", "Runtime"} {
		b.Do(name, domain+".enable", nil, nil)
	}
	b.Do(name, "Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": watching}, nil)
	b.show(name, s)
	b.to(name, url)
}

// to loads an address. One that differs in what is behind # alone would not be loaded.
func (b *browser) to(name, url string) {
	b.T.Helper()
	b.faultless(name)
	b.Do(name, "Page.navigate", map[string]any{"url": "about:blank"}, nil)
	b.Do(name, "Page.navigate", map[string]any{"url": url}, nil)
	b.Until(name, "clients are connected", `document.querySelectorAll(".status").length > 1 && [...document.querySelectorAll(".status")].every((s) => s.dataset.state === "connected")`)
}

// faultless reports what a tab's page was refused by its policy, or failed with.
func (b *browser) faultless(name string) {
	b.T.Helper()
	var faults []string
	b.run(name, `window.faults ?? []`, &faults)
	for _, fault := range faults {
		b.T.Errorf("tab %s: %s", name, fault)
	}
}

// show sets a tab's screen.
func (b *browser) show(name string, s screen) {
	b.T.Helper()
	b.Do(name, "Emulation.setDeviceMetricsOverride", map[string]any{"width": s.width, "height": s.height, "deviceScaleFactor": 1, "mobile": s.width < 500}, nil)
	b.Do(name, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": s.scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
}

// run does something in a tab's page, and waits for what it promises.
func (b *browser) run(name, expression string, value any) {
	b.T.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.Do(name, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}, &got)
	if got.ExceptionDetails != nil {
		b.T.Fatalf("%s: %.500s", expression[:min(len(expression), 80)], got.ExceptionDetails)
	}
	if value != nil {
		if err := json.Unmarshal(got.Result.Value, value); err != nil {
			b.T.Fatalf("%s: %v in %s", expression, err, got.Result.Value)
		}
	}
}

// key presses a key, as a keyboard does.
func (b *browser) key(name, key string) {
	b.T.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40, "End": 35, "Home": 36}
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
		if key == "Enter" && kind == "keyDown" {
			params["text"] = "\r"
		}
		b.Do(name, "Input.dispatchKeyEvent", params, nil)
	}
}

// says writes a message as a person, by keyboard.
func (b *browser) says(name, person, text string) {
	b.T.Helper()
	b.Do(name, "Page.bringToFront", nil, nil)
	b.run(name, fmt.Sprintf(`pane(%q).querySelector("input").focus()`, person), nil)
	b.Do(name, "Input.insertText", map[string]any{"text": text}, nil)
	b.key(name, "Enter")
}

// seqs of the messages that a person has on the screen, in their order there.
func (b *browser) seqs(name, person string) (seqs []int) {
	b.T.Helper()
	b.run(name, fmt.Sprintf(`[...pane(%q).querySelectorAll("[data-seq]")].map((m) => Number(m.dataset.seq))`, person), &seqs)
	return seqs
}

func (b *browser) text(name, expression string) (text string) {
	b.T.Helper()
	b.run(name, expression, &text)
	return text
}

func TestPlayground(t *testing.T) {
	dev := procmesh.StartDev(t)
	b := start(t)
	b.visit("first", dev.Playground, desktop)
	b.visit("second", dev.Playground, desktop)
	t.Run("chat", b.chats)
	t.Run("a wire that is cut", b.comesBack)
	t.Run("seat", func(t *testing.T) { b.seats(t, dev.Playground) })
	t.Run("prices", func(t *testing.T) { b.ranks(t, dev.Playground) })
	t.Run("topic", func(t *testing.T) { b.explores(t, dev) })
	t.Run("gaps", func(t *testing.T) { b.tellsGaps(t, dev.Playground) })
	t.Run("keyboard", func(t *testing.T) { b.walks(t, dev.Playground) })
	t.Run("themes", func(t *testing.T) { b.darkens(t, dev.Playground) })
	t.Run("accessible", func(t *testing.T) { b.isAccessible(t, dev.Playground) })
	t.Run("alone", func(t *testing.T) { b.asksNobodyElse(t, dev) })
}

// What one says by keyboard all have, in both tabs, and everybody is there.
func (b *browser) chats(t *testing.T) {
	b.T = t
	all := slices.Concat(here, there)
	for tab, people := range map[string][]string{"first": here, "second": there} {
		for _, person := range people {
			b.Until(tab, person+" sees four people", fmt.Sprintf(`pane(%q).querySelector(".here").textContent.startsWith("4 people here")`, person))
			for _, other := range all {
				b.Until(tab, person+" sees "+other, fmt.Sprintf(`[...pane(%q).querySelectorAll(".member")].some((m) => m.textContent === %q)`, person, other))
			}
		}
	}
	b.says("first", "Ann", "hello all")
	b.says("second", "Dan", "hello Ann")
	for tab, people := range map[string][]string{"first": here, "second": there} {
		for _, person := range people {
			b.Until(tab, person+" has both", fmt.Sprintf(`(() => { const said = [...pane(%q).querySelectorAll(".message .text")].map((m) => m.textContent); return said.includes("hello all") && said.includes("hello Ann"); })()`, person))
			if got := b.seqs(tab, person); !slices.Equal(got, []int{1, 2}) {
				t.Errorf("%s has seqs %v", person, got)
			}
		}
	}
	// Somebody who types is seen to.
	b.run("first", `pane("Bob").querySelector("input").focus()`, nil)
	b.Do("first", "Input.insertText", map[string]any{"text": "well"}, nil)
	b.Until("first", "Ann sees that Bob types", `pane("Ann").querySelector(".member.typing")?.textContent.startsWith("Bob") === true`)
	b.run("first", `(() => { const i = pane("Bob").querySelector("input"); i.value = ""; i.dispatchEvent(new Event("input")); })()`, nil)
	b.Until("first", "Bob types no more", `!pane("Ann").querySelector(".member.typing")`)
	// The frames of it went by.
	for _, want := range []string{"Hello", "Welcome", "Subscribe", "Subscribed", "Publish", "Published", "Message", "Ack", "Presence", "State"} {
		b.Until("first", "a frame "+want, fmt.Sprintf(`[...document.querySelectorAll("#frames .kind")].some((k) => k.textContent === %q)`, want))
	}
	var message []string
	b.run("first", `[...[...document.querySelectorAll("#frames tr.in")].find((r) => r.querySelector(".kind").textContent === "Message").cells].map((c) => c.textContent)`, &message)
	if seq, _ := strconv.Atoi(message[5]); seq < 1 || message[4] != "play/chat" || !strings.HasSuffix(message[8], "s") {
		t.Errorf("the frame of a message says %q", message)
	}
}

// Two people are cut off for ten seconds, one with a session and one without. What others say
// meanwhile comes then: nothing is missing, nothing comes twice, and all of it is marked.
func (b *browser) comesBack(t *testing.T) {
	b.T = t
	for _, person := range here {
		before := b.seqs("first", person)
		b.run("first", fmt.Sprintf(`press(%q, "Cut the wire")`, person), nil)
		b.Until("first", person+" is cut off", fmt.Sprintf(`pane(%q).querySelector(".status").dataset.state === "cut"`, person))
		const others = 20
		b.run("second", fmt.Sprintf(`for (let i = 1; i <= %d; i++) {
			const form = pane("Cleo").querySelector("form");
			form.querySelector("input").value = i + " while %s is away";
			form.requestSubmit();
		}`, others, person), nil)
		// What is said by who is cut off waits.
		b.says("first", person, "can you hear me?")
		b.Until("first", "it waits", fmt.Sprintf(`[...pane(%q).querySelectorAll(".note")].some((n) => n.textContent.includes("waits for the wire"))`, person))
		if got := b.seqs("first", person); !slices.Equal(got, before) {
			t.Errorf("%s got %v while cut off", person, got[len(before):])
		}
		b.Until("first", person+" is back", fmt.Sprintf(`pane(%q).querySelector(".note.back") !== null`, person))
		b.Until("first", "what waited was said", fmt.Sprintf(`[...pane(%q).querySelectorAll(".message.mine .text")].some((m) => m.textContent === "can you hear me?")`, person))
		said := b.text("first", fmt.Sprintf(`[...pane(%q).querySelectorAll(".note.back")].at(-1).textContent`, person))
		// Five are counted by the other one.
		if !strings.Contains(said, fmt.Sprintf("%d messages came late, in order", others+5)) || !strings.HasSuffix(said, "None is missing, none came twice.") {
			t.Error(said)
		}
		seqs := b.seqs("first", person)
		for i, seq := range seqs {
			if seq != i+1 {
				t.Fatalf("%s has seqs %v", person, seqs)
			}
		}
		var marked int
		b.run("first", fmt.Sprintf(`pane(%q).querySelectorAll(".message.missed").length`, person), &marked)
		if want := others + 5; marked != want && person == here[0] {
			t.Errorf("%d of %s's messages are marked, not %d", marked, person, want)
		}
		t.Log(person+":", said)
	}
	want := len(b.seqs("first", "Ann"))
	for _, person := range there {
		procmesh.Await(t, person+" has all", func() bool { return len(b.seqs("second", person)) == want })
	}
	var rows int
	b.run("first", `document.querySelectorAll("#frames tr").length`, &rows)
	if rows > 120 || rows < 100 {
		t.Errorf("%d frames are shown", rows)
	}
}

// seat reads what a person has of the seat.
func (b *browser) seat(tab, person, is string) {
	b.T.Helper()
	b.Until(tab, person+" "+is, fmt.Sprintf(`pane(%q).dataset.seat === %q`, person, is))
}

// One has the seat, whichever tab asks; it passes on when it is given up, when a tab is closed, and
// when who has it is cut off for too long.
func (b *browser) seats(t *testing.T, url string) {
	b.T = t
	b.to("first", url+"#seat")
	b.to("second", url+"#seat")
	holder := func(name string) {
		t.Helper()
		for _, tab := range []string{"first", "second"} {
			b.Until(tab, name+" has the seat", fmt.Sprintf(`document.querySelector(".chair").dataset.holder === %q`, name))
		}
	}
	holder("")
	b.run("first", `press("Ann", "Ask for the seat")`, nil)
	b.seat("first", "Ann", "holds")
	holder("Ann")
	b.run("second", `press("Cleo", "Ask for the seat")`, nil)
	b.seat("second", "Cleo", "waits")
	b.run("first", `press("Bob", "Ask for the seat")`, nil)
	b.seat("first", "Bob", "waits")
	b.Until("first", "Bob is second", `pane("Bob").textContent.includes("Number 2 in the line")`)
	b.Until("second", "two wait", `document.querySelector(".chair").textContent.includes("2 clients in line")`)

	// Whoever gives it up, the next one has it, with a greater token.
	token := func(tab, person string) (n int) {
		t.Helper()
		n, err := strconv.Atoi(b.text(tab, fmt.Sprintf(`/token (\d+)/.exec(pane(%q).textContent)[1]`, person)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := token("first", "Ann")
	b.run("first", `press("Ann", "Give it up")`, nil)
	b.seat("second", "Cleo", "holds")
	b.seat("first", "Ann", "idle")
	holder("Cleo")
	if second := token("second", "Cleo"); second <= first {
		t.Errorf("the second token is %d, the first was %d", second, first)
	}

	// Who is cut off for longer than the grace has lost it.
	b.run("second", `press("Cleo", "Cut the wire")`, nil)
	b.seat("first", "Bob", "holds")
	b.Until("first", "Bob has the seat", `document.querySelector(".chair").dataset.holder === "Bob"`)
	b.Until("second", "Cleo knows that she has lost it", `pane("Cleo").dataset.seat === "idle" && pane("Cleo").textContent.includes("Lost it")`)
	holder("Bob")

	// So has who closes the tab.
	b.run("second", `press("Dan", "Ask for the seat")`, nil)
	b.seat("second", "Dan", "waits")
	b.to("first", url+"#chat")
	b.seat("second", "Dan", "holds")
	b.run("second", `press("Dan", "Give it up")`, nil)
	b.Until("second", "the seat is free", `document.querySelector(".chair").dataset.holder === ""`)
}

// ranked are the sectors and symbols that a person sees, the best one first.
func (b *browser) ranked(person string) (rows [][2]string) {
	b.T.Helper()
	b.run("first", fmt.Sprintf(`[...pane(%q).querySelectorAll(".price")].map((p) => [p.dataset.sector, p.dataset.symbol])`, person), &rows)
	return rows
}

// Each profile gets the best five of the same twelve prices, in an order of its own.
func (b *browser) ranks(t *testing.T, url string) {
	b.T = t
	b.Do("first", "Page.bringToFront", nil, nil)
	b.to("first", url+"#prices")
	// Both of one second: prices of a round replace those of the one before, row by row.
	both := func(first, second string) {
		t.Helper()
		var ann, bob [][2]string
		procmesh.Await(t, "Ann sees "+first+", Bob "+second, func() bool {
			ann, bob = b.ranked("Ann"), b.ranked("Bob")
			four := func(rows [][2]string, sector string) bool {
				return len(rows) == 5 && !slices.ContainsFunc(rows[:4], func(r [2]string) bool { return r[0] != sector })
			}
			return four(ann, first) && four(bob, second)
		})
		if slices.Equal(ann, bob) {
			t.Errorf("both see %v", ann)
		}
	}
	both("tech", "energy")
	b.run("first", `pane("Bob").querySelector('input[value="food"]').click()`, nil)
	both("tech", "food")
	b.Until("first", "scores are shown", `[...document.querySelectorAll("#frames .detail")].some((d) => /^score [0-9]/.test(d.textContent))`)
}

// follows subscribes as a person, by keyboard; from is where to begin.
func (b *browser) follows(name, person, filter, from string) {
	b.T.Helper()
	b.Do(name, "Page.bringToFront", nil, nil)
	b.run(name, fmt.Sprintf(`pane(%q).querySelector('input[value=%q]').click(); pane(%[1]q).querySelector("input").select()`, person, from), nil)
	b.Do(name, "Input.insertText", map[string]any{"text": filter}, nil)
	b.key(name, "Enter")
}

// publishes a payload as a person, by keyboard.
func (b *browser) publishes(name, person, topic, payload string) {
	b.T.Helper()
	b.Do(name, "Page.bringToFront", nil, nil)
	for _, input := range [][2]string{{"Topic", topic}, {"Payload", payload}} {
		b.run(name, fmt.Sprintf(`pane(%q).querySelector('input[aria-label^=%q]').select()`, person, input[0]), nil)
		b.Do(name, "Input.insertText", map[string]any{"text": input[1]}, nil)
	}
	b.key(name, "Enter")
}

// entries are the topics, seqs and texts of what a person has received.
func (b *browser) entries(name, person string) (all []string) {
	b.T.Helper()
	b.run(name, fmt.Sprintf(`[...pane(%q).querySelectorAll(".entry")].map((e) => e.dataset.topic + " " + e.dataset.seq + " " + e.querySelector(".entry-text").textContent)`, person), &all)
	return all
}

// A visitor subscribes to any topic and publishes where they may, and has what backends publish,
// with seq and latency.
func (b *browser) explores(t *testing.T, dev *procmesh.Dev) {
	b.T = t
	b.to("first", dev.Playground+"#topic")
	subscribed := func(person, filter string) {
		t.Helper()
		b.Until("first", person+" is subscribed to "+filter, fmt.Sprintf(`pane(%q).querySelector('[data-filter=%q]')?.dataset.state === "subscribed"`, person, filter))
	}
	has := func(person string, want ...string) {
		t.Helper()
		procmesh.Await(t, fmt.Sprintf("%s has %q", person, want), func() bool { return len(b.entries("first", person)) >= len(want) })
		if got := b.entries("first", person); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", person, got, want)
		}
	}
	for _, person := range here {
		subscribed(person, "play/news/#")
	}
	b.publishes("first", "Ann", "play/news/today", "the sun is out")
	sun := "play/news/today 1 Ann: the sun is out"
	for _, person := range here {
		has(person, sun)
	}
	b.Until("first", "Ann is told of the seq", `[...pane("Ann").querySelectorAll(".note")].some((n) => /on disk as seq 1 of play\/news\/today, after [0-9.]+ m?s/.test(n.textContent))`)
	if meta := b.text("first", `pane("Bob").querySelector(".entry .meta").textContent`); !strings.HasPrefix(meta, "seq 1 · ") || !strings.HasSuffix(meta, "s") {
		t.Errorf("beside the message it says %q", meta)
	}

	// Elsewhere a backend publishes, where clients may not.
	b.follows("first", "Bob", "orders/+/lines", "live")
	subscribed("Bob", "orders/+/lines")
	b.publishes("first", "Ann", "orders/7/lines", "a cup")
	b.Until("first", "Ann hears who may", `[...pane("Ann").querySelectorAll(".note")].some((n) => n.textContent.includes("FORBIDDEN")) && pane("Ann").querySelector(".note code")?.textContent.startsWith("pushmesh pub orders/7/lines hello --router ") === true`)
	command := strings.Fields(b.text("first", `pane("Ann").querySelector(".note code").textContent`))
	// #nosec G204 -- what the page tells its visitors to type
	if out, err := exec.Command(dev.Path, command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
	cup := "orders/7/lines 0 a backend: hello"
	has("Bob", sun, cup)

	// Once more from the beginning, by another filter; and no longer.
	b.follows("first", "Ann", "play/news/today", "earliest")
	subscribed("Ann", "play/news/today")
	has("Ann", sun, sun)
	b.run("first", `pane("Bob").querySelector('[data-filter="play/news/#"] button').click()`, nil)
	b.Until("first", "Bob is not subscribed", `pane("Bob").querySelectorAll(".filters li").length === 1`)
	b.publishes("first", "Ann", "play/news/today", "the rain is back")
	rain := "play/news/today 2 Ann: the rain is back"
	has("Ann", sun, sun, rain, rain)
	has("Bob", sun, cup)
	b.follows("first", "Ann", "a//b", "live")
	b.Until("first", "Ann is told what is wrong", `[...pane("Ann").querySelectorAll(".note.gap")].some((n) => n.textContent.includes("BAD_TOPIC"))`)
}

// What will not come is told where it is missing, beside the person, and among the frames.
func (b *browser) tellsGaps(t *testing.T, url string) {
	b.T = t
	told := func(person string) {
		t.Helper()
		b.Until("first", person+" has a gap", fmt.Sprintf(`pane(%q).querySelector(".status .gaps").textContent === "1 gap"`, person))
		b.Until("first", "it is among the frames", `document.querySelector("#frames tr.gap") !== null && document.querySelector("#sums").textContent.includes("1 gap")`)
	}
	b.to("first", url+"#topic")
	b.follows("first", "Bob", "nowhere/else", "earliest")
	b.Until("first", "Bob is told why", `pane("Bob").querySelector(".note.gap")?.textContent === "nowhere/else has no history to begin with: only what is published from now on comes."`)
	told("Bob")

	b.to("first", url+"#prices")
	b.Until("first", "prices are there", `document.querySelectorAll(".price").length === 10`)
	b.run("first", `press("Ann", "Cut the wire")`, nil)
	b.Until("first", "Ann is cut off", `pane("Ann").querySelector(".status").dataset.state === "cut"`)
	b.Until("first", "Ann is told which seconds are gone", `/^Seconds \d+ to \d+ are gone: /.test(pane("Ann").querySelector("p.gap:not([hidden])")?.textContent ?? "")`)
	told("Ann")
	if others := b.text("first", `pane("Bob").querySelector(".status .gaps").textContent`); others != "" {
		t.Errorf("Bob, who has all prices, has %s", others)
	}
}

// reached is what has the focus, and whether that can be seen.
type reached struct {
	What    string
	Visible bool
}

// The Tab key leads to everything that can be used, each is seen to have the focus, and arrows lead
// through tabs and choices.
func (b *browser) walks(t *testing.T, url string) {
	b.T = t
	for _, demo := range []string{"chat", "prices", "seat", "topic"} {
		b.to("first", url+"#"+demo)
		var want []string
		b.run("first", `(() => {
			window.what = (e) => e.id || e.getAttribute("aria-label") || (e.closest("[data-person]")?.dataset.person ?? "") + " " + (e.value && e.type === "radio" ? e.name : e.textContent).trim().slice(0, 20);
			const radios = new Set();
			return [...document.querySelectorAll("a[href], button, input, [tabindex='0']")].filter((e) => {
				if (e.tabIndex < 0 || e.disabled || e.closest("[hidden]")) return false;
				if (e.type !== "radio") return true;
				if (!e.checked || radios.has(e.name)) return false;
				return radios.add(e.name);
			}).map(what);
		})()`, &want)
		if len(want) < 10 {
			t.Fatalf("%s: %d things can be used: %q", demo, len(want), want)
		}
		var got []string
		for range want {
			b.key("first", "Tab")
			var at reached
			b.run("first", `(() => {
				const e = document.activeElement;
				const seen = e.type === "radio" ? e.nextElementSibling : e;
				const style = getComputedStyle(seen);
				return { what: what(e), visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 };
			})()`, &at)
			got = append(got, at.What)
			if !at.Visible {
				t.Errorf("%s: %q has the focus, which is not seen", demo, at.What)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: Tab leads to\n%q, and not to\n%q", demo, got, want)
		}
	}
	b.run("first", `document.querySelector("#tab-topic").focus()`, nil)
	for _, step := range [][2]string{{"ArrowRight", "chat"}, {"ArrowRight", "prices"}, {"End", "topic"}, {"ArrowLeft", "seat"}, {"Home", "chat"}} {
		b.key("first", step[0])
		if at := b.text("first", `document.activeElement.id + " " + location.hash`); at != "tab-"+step[1]+" #"+step[1] {
			t.Errorf("%s leads to %s", step[0], at)
		}
	}
	// Each language has a program, with this mesh's addresses.
	for _, language := range []string{"go", "py", "sh", "ts"} {
		b.run("first", fmt.Sprintf(`document.querySelector("#tab-%s").click()`, language), nil)
		code := b.text("first", `document.querySelector(".code code").textContent`)
		if !strings.Contains(code, "play/chat") || strings.Contains(code, "127.0.0.1:7400") || !strings.Contains(code, b.text("first", `document.querySelector("meta[name=pushmesh-edge]").content`)) {
			t.Errorf("the program in %s is\n%s", language, code)
		}
	}
	// The first key leads past all that is on top.
	b.to("first", url)
	b.key("first", "Tab")
	b.key("first", "Enter")
	b.Until("first", "the link leads to the demo", `document.activeElement.id === "stage"`)
}

// The page is dark where the system is, until its switch says something else, which is kept.
func (b *browser) darkens(t *testing.T, url string) {
	b.T = t
	ground := func() string { t.Helper(); return b.text("first", `getComputedStyle(document.body).backgroundColor`) }
	b.to("first", url)
	light := ground()
	b.show("first", night)
	b.Until("first", "dark as the system", fmt.Sprintf(`getComputedStyle(document.body).backgroundColor !== %q`, light))
	b.run("first", `document.querySelector("#theme").click()`, nil)
	if got := ground(); got != light {
		t.Errorf("the switch leads to %s", got)
	}
	b.to("first", url)
	if got := ground(); got != light {
		t.Errorf("loaded again it is %s", got)
	}
	b.run("first", `localStorage.removeItem("theme")`, nil)
	b.show("first", desktop)
}

// axe is the text of axe-core.
func axe(t *testing.T) string {
	t.Helper()
	dir, err := exec.Command(filepath.Join("..", "..", "..", "scripts", "tool"), "axe").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// axe-core finds nothing in any demo, in light and dark and on a phone, and nothing is wider than
// the screen, or reaches out of its card.
func (b *browser) isAccessible(t *testing.T, url string) {
	b.T = t
	source := axe(t)
	// It is not the page's own, whose policy lets nothing in.
	b.Do("first", "Page.setBypassCSP", map[string]any{"enabled": true}, nil)
	defer b.Do("first", "Page.setBypassCSP", map[string]any{"enabled": false}, nil)
	for name, s := range map[string]screen{"light": desktop, "dark": night, "phone": phone} {
		b.show("first", s)
		for _, demo := range []string{"chat", "prices", "seat", "topic"} {
			b.to("first", url+"#"+demo)
			b.fill(demo)
			b.run("first", source+`;undefined`, nil)
			var found []struct {
				ID, Help string
				Nodes    []struct{ HTML string }
			}
			b.run("first", `axe.run().then((r) => r.violations)`, &found)
			for _, f := range found {
				t.Errorf("%s, %s: %s: %s: %.200v", name, demo, f.ID, f.Help, f.Nodes)
			}
			// A phone makes a page that is too wide small, and innerWidth as wide as it.
			var width int
			b.run("first", `document.documentElement.scrollWidth`, &width)
			if width > s.width {
				t.Errorf("%s, %s: the page is %d wide, and the screen %d", name, demo, width, s.width)
			}
			var out []string
			b.run("first", `[...document.querySelectorAll(".pane")].flatMap((p) => {
				const card = p.getBoundingClientRect();
				return [...p.querySelectorAll("*")].filter((e) => e.getClientRects().length > 0 && (e.getBoundingClientRect().right > card.right + 0.5 || e.getBoundingClientRect().left < card.left - 0.5)).map((e) => e.outerHTML.slice(0, 80));
			})`, &out)
			if len(out) > 0 {
				t.Errorf("%s, %s: out of their cards reach %q", name, demo, out)
			}
		}
	}
	b.show("first", desktop)
}

// fill has a demo show what it has.
func (b *browser) fill(demo string) {
	b.T.Helper()
	switch demo {
	case "chat":
		b.says("first", "Ann", "Are you there?")
		b.Until("first", "Bob has it", `[...pane("Bob").querySelectorAll(".message .text")].at(-1)?.textContent === "Are you there?"`)
	case "prices":
		b.Until("first", "prices are there", `document.querySelectorAll(".price").length === 10`)
	case "seat":
		b.run("first", `press("Ann", "Ask for the seat")`, nil)
		b.seat("first", "Ann", "holds")
		b.run("first", `press("Bob", "Ask for the seat")`, nil)
		b.seat("first", "Bob", "waits")
	case "topic":
		// A gap, a refusal, and messages in both panes.
		b.follows("first", "Bob", "nowhere/else", "earliest")
		b.Until("first", "Bob is told of the gap", `pane("Bob").querySelector(".note.gap") !== null`)
		b.publishes("first", "Ann", "nowhere/else", "may I?")
		b.Until("first", "Ann may not", `pane("Ann").querySelector(".note code") !== null`)
		b.publishes("first", "Ann", "play/news/today", "the sun is out")
		b.Until("first", "Bob has it", `[...pane("Bob").querySelectorAll(".entry-text")].some((e) => e.textContent.endsWith("the sun is out"))`)
	}
}

// In all that was done above the pages asked nobody but the playground and the edge, their policy
// refused nothing, and nothing failed.
func (b *browser) asksNobodyElse(t *testing.T, dev *procmesh.Dev) {
	b.T = t
	asked := map[string]int{}
	for name := range b.Tabs {
		b.faultless(name)
		for _, e := range b.Tabs[name].Events {
			var p struct {
				Request struct{ URL string }
				URL     string
				Type    string
			}
			if err := json.Unmarshal(e.Params, &p); err != nil {
				t.Fatal(err)
			}
			switch e.Method {
			case "Network.requestWillBeSent", "Network.webSocketCreated":
				asked[cmp.Or(p.Request.URL, p.URL)]++
			case "Runtime.exceptionThrown":
				t.Errorf("tab %s: %.300s", name, e.Params)
			case "Runtime.consoleAPICalled":
				if p.Type == "error" || p.Type == "warning" {
					t.Errorf("tab %s: %.300s", name, e.Params)
				}
			}
		}
	}
	if asked["ws://"+dev.Edge+"/"] == 0 || asked[dev.Playground+"app.js"] == 0 {
		t.Errorf("asked for %v", asked)
	}
	for url := range asked {
		if !strings.HasPrefix(url, dev.Playground) && url != "ws://"+dev.Edge+"/" && url != "about:blank" {
			t.Errorf("it asked for %s", url)
		}
	}
}
