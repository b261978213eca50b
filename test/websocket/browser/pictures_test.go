//go:build browser

package browser

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/test/procmesh"
)

// mostBytes is what a picture in the documentation may have.
const mostBytes = 150_000

// small is a screen whose pictures are small, too.
func (s screen) small() screen {
	s.width, s.height = 1200, 1180
	return s
}

// TestPictures takes the pictures of the playground that the documentation shows, where
// PUSHMESH_BROWSER_PICTURES says: make playground-pictures. Without it they go nowhere, but what
// they show is there.
func TestPictures(t *testing.T) {
	folder := os.Getenv("PUSHMESH_BROWSER_PICTURES")
	if folder == "" {
		folder = t.TempDir()
	}
	dev := procmesh.StartDev(t)
	b := start(t)
	b.visit("first", dev.Playground, desktop.small())
	b.Do("first", "Emulation.setScrollbarsHidden", map[string]any{"hidden": true}, nil)
	b.says("first", "Ann", "Hello Bob, are you there?")
	b.says("first", "Bob", "I am. Now cut my wire.")
	b.Until("first", "Ann has it", `[...pane("Ann").querySelectorAll(".message .text")].at(-1)?.textContent.startsWith("I am.") === true`)
	b.run("first", `press("Bob", "Cut the wire")`, nil)
	b.Until("first", "Bob is back", `pane("Bob").querySelector(".note.back") !== null`)
	b.Until("first", "both are there again", `[...document.querySelectorAll(".here")].every((h) => h.textContent.startsWith("2 people here"))`)
	b.picture(folder, "chat")

	b.show("first", phone)
	b.Until("first", "it is as narrow as a phone", `document.documentElement.scrollWidth === 360`)
	b.picture(folder, "phone")

	b.show("first", night.small())
	b.to("first", dev.Playground+"#prices")
	b.Until("first", "prices are there", `document.querySelectorAll(".price").length === 10 && !document.querySelector("[data-person=Bob] .here").textContent.includes("Second 1:")`)
	b.picture(folder, "prices")

	b.show("first", desktop.small())
	b.to("first", dev.Playground+"#seat")
	b.fill("seat")
	b.Until("first", "one waits", `document.querySelector(".chair").textContent.includes("1 client in line")`)
	b.picture(folder, "seat")

	b.to("first", dev.Playground+"#topic")
	b.fill("topic")
	b.picture(folder, "topic")
}

// picture saves what a tab shows.
func (b *browser) picture(folder, name string) {
	b.T.Helper()
	b.run("first", `document.activeElement.blur(); scrollTo(0, 0)`, nil)
	var shot struct{ Data []byte }
	b.Do("first", "Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	full, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		b.T.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, fewColours(full)); err != nil {
		b.T.Fatal(err)
	}
	if out.Len() > mostBytes {
		b.T.Errorf("%s has %d bytes, %d at most", name, out.Len(), mostBytes)
	}
	if err := os.WriteFile(filepath.Join(folder, "playground-"+name+".png"), out.Bytes(), 0o644); err != nil {
		b.T.Fatal(err)
	}
}

// differ is how much two colours do.
func differ(a, b color.RGBA) int {
	sum := 0
	for _, d := range []int{int(a.R) - int(b.R), int(a.G) - int(b.G), int(a.B) - int(b.B)} {
		sum += d * d
	}
	return sum
}

// fewColours is a picture in 256 colours that are frequent and not alike, others being the nearest
// of these.
func fewColours(full image.Image) *image.Paletted {
	frequent := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	size := full.Bounds()
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			frequent[at(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(frequent), func(a, b color.RGBA) int {
		return cmp.Or(frequent[b]-frequent[a], cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range colours {
		if len(palette) == 256 {
			break
		}
		if len(palette) == 0 || differ(palette.Convert(c).(color.RGBA), c) > 24 {
			palette = append(palette, c)
		}
	}
	nearest := map[color.RGBA]uint8{}
	for _, c := range colours {
		nearest[c] = uint8(palette.Index(c))
	}
	few := image.NewPaletted(size, palette)
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			few.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	return few
}
