package hook

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity/token"
)

// What the cache takes is what it is allowed, whatever answers are like.
func TestAnswersTakeWhatTheyCount(t *testing.T) {
	const most = 2 << 20
	long := strings.Repeat("x", 200)
	for what, answer := range map[string]func(i int) string{
		"small ones": func(i int) string {
			return fmt.Sprintf(`{"sub": "u%d", "expires_in": 600, "cache_seconds": 60, "pm_sub": ["room/%d/#"]}`, i, i)
		},
		"long filters": func(i int) string {
			var filters []string
			for n := range 30 {
				filters = append(filters, fmt.Sprintf(`"%s/%d/%d"`, long, i, n))
			}
			return fmt.Sprintf(`{"sub": "u%d", "expires_in": 600, "cache_seconds": 60, "pm_sub": [%s]}`, i, strings.Join(filters, ","))
		},
		"long client ids": func(i int) string {
			var ids []string
			for n := range 16 {
				ids = append(ids, fmt.Sprintf(`"%s%d-%d"`, long[:50], i, n))
			}
			return fmt.Sprintf(`{"sub": "u%d", "expires_in": 600, "cache_seconds": 60, "pm_client": [%s]}`, i, strings.Join(ids, ","))
		},
		"profiles": func(i int) string {
			var of []string
			for n := range 64 {
				of = append(of, fmt.Sprintf(`"%s%d-%d": %d`, long[:50], i, n, n))
			}
			return fmt.Sprintf(`{"sub": "u%d", "expires_in": 600, "cache_seconds": 60, "pm_profile": {%s}}`, i, strings.Join(of, ","))
		},
	} {
		t.Run(what, func(t *testing.T) {
			c, now := newCache(most), time.Now()
			heap := func() int { // what others let go of meanwhile counts against it
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int(m.HeapAlloc)
			}
			before := heap()
			for i := 0; i < 100 || c.all.Len() == i; i++ {
				text := answer(i)
				a, err := token.ReadAnswer([]byte(text), now, now)
				if err != nil {
					t.Fatal(err)
				}
				c.put((&Question{Token: fmt.Sprint(i)}).hash(), a, now)
			}
			took := heap() - before
			t.Logf("%d answers take %d bytes, and count %d", c.all.Len(), took, c.all.Cost())
			if took > 5*most/4 {
				t.Errorf("%d bytes are taken where %d are allowed", took, most)
			}
			runtime.KeepAlive(c)
		})
	}
}
