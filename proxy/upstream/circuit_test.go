package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/policy"
)

// patient is an upstream in a bubble that does as it is told.
type patient struct {
	*Upstream
	t     *testing.T
	fault error
	code  int
	asked int
}

func inBubble(t *testing.T, body func(p *patient)) {
	synctest.Test(t, func(t *testing.T) {
		p := &patient{t: t, code: 200}
		u, err := With(config("http://upstream.test"), roundTripper(func(*http.Request) (*http.Response, error) {
			p.asked++
			if p.fault != nil {
				return nil, p.fault
			}
			return &http.Response{StatusCode: p.code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("x"))}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		p.Upstream = u
		body(p)
		if s := u.Stats(); s.Running != 0 {
			t.Errorf("slots left: %+v", s)
		}
	})
}

// ask sends a request for a page, "" for one that is its client's own.
func (p *patient) ask(class policy.Class, page string) error {
	slot, err := p.Enter(p.t.Context(), At(class))
	if err != nil {
		return err
	}
	defer slot.Leave()
	slot.For(page)
	_, err = slot.Do(httptest.NewRequestWithContext(p.t.Context(), "GET", "http://upstream.test/", nil))
	return err
}

// spared fails unless a request of that class was, or was not, sent.
func (p *patient) spared(class policy.Class, want bool) {
	p.t.Helper()
	_, told := p.Spares(class)
	before := p.asked
	err := p.ask(class, "other")
	if is := errors.As(err, new(*Spared)); is != want || told != want || (p.asked == before) != want {
		p.t.Errorf("class %d: %v (sent %d, foretold %v), want spared=%v", class, err, p.asked-before, told, want)
	}
}

func (p *patient) is(health string) {
	p.t.Helper()
	if got := p.Stats().Health; got != health || (p.Health() == policy.Well) != (health == "well") {
		p.t.Errorf("health is %s, want %s", got, health)
	}
}

// later is after the longest pause.
const later = pause + pause/4

var dialFails = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

// An upstream that cannot be reached is not asked by anybody, but by one request a second that tries.
func TestDown(t *testing.T) {
	inBubble(t, func(p *patient) {
		p.fault = dialFails
		for range unreached {
			p.is("well")
			if err := p.ask(policy.ClientWaits, ""); !errors.Is(err, dialFails) {
				t.Errorf("%v", err)
			}
		}
		p.is("down")
		p.spared(policy.ClientWaits, true)
		p.spared(policy.ErrorWaits, true)
		var turned *Spared
		if err := p.ask(policy.ClientWaits, ""); !errors.As(err, &turned) || turned.After <= 0 || turned.After > later {
			t.Errorf("%v", err)
		}
		for range 10 {
			time.Sleep(later)
			p.spared(policy.ClientWaits, false) // it tries, in vain
			p.spared(policy.ClientWaits, true)
		}
		time.Sleep(later)
		p.fault = nil
		p.spared(policy.StaleWaits, false)
		p.is("well")
		p.spared(policy.StaleWaits, false)
		if got := p.Stats().Spared; got != 13 {
			t.Errorf("spared %d, want 13", got)
		}
	})
}

// Whatever comes back shows that it is reached: faults count only in a row, and a 500 ends being down.
func TestReached(t *testing.T) {
	inBubble(t, func(p *patient) {
		for range 2 * unreached {
			p.fault = dialFails
			for range unreached - 1 {
				_ = p.ask(policy.ClientWaits, "")
			}
			p.fault = errors.New("reset")
			_ = p.ask(policy.ClientWaits, "")
		}
		p.is("well")
		p.fault = dialFails
		for range unreached {
			_ = p.ask(policy.ClientWaits, "")
		}
		p.is("down")
		time.Sleep(later)
		p.fault, p.code = nil, 500
		_ = p.ask(policy.ClientWaits, "")
		p.is("well")
	})
}

// An upstream that fails on many pages is asked only for whom no stale copy can stand in.
func TestSick(t *testing.T) {
	for name, fail := range map[string]func(*patient){
		"500": func(p *patient) { p.code = 500 }, "429": func(p *patient) { p.code = 429 },
		"reset": func(p *patient) { p.fault = io.EOF }, "slow": func(p *patient) { p.fault = context.DeadlineExceeded },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(p *patient) {
				fail(p)
				for i := range sampled {
					p.is("well")
					_ = p.ask(policy.ClientWaits, fmt.Sprint(i))
				}
				p.is("sick")
				p.spared(policy.ClientWaits, false)
				p.spared(policy.ErrorWaits, true)
				p.spared(policy.EarlyWaits, true)
				time.Sleep(later)
				p.spared(policy.ErrorWaits, false) // it tries, in vain
				p.spared(policy.ErrorWaits, true)
				p.code, p.fault = 200, nil
				p.spared(policy.ClientWaits, false) // well, but not the one that tries
				p.is("sick")
				time.Sleep(later)
				p.spared(policy.StaleWaits, false)
				p.is("well")
			})
		})
	}
}

// While one tries, what others meet with decides nothing.
func TestOneTries(t *testing.T) {
	inBubble(t, func(p *patient) {
		p.code = 500
		for i := range sampled {
			_ = p.ask(policy.ClientWaits, fmt.Sprint(i))
		}
		time.Sleep(later)
		tries, err := p.Enter(p.t.Context(), At(policy.StaleWaits))
		if err != nil {
			t.Fatal(err)
		}
		p.code = 200
		for range 3 {
			p.spared(policy.ClientWaits, false)
			p.spared(policy.ErrorWaits, true)
		}
		p.is("sick")
		p.code = 500
		_, _ = tries.Do(httptest.NewRequestWithContext(p.t.Context(), "GET", "http://upstream.test/", nil))
		tries.Leave()
		p.is("sick")
		p.spared(policy.ErrorWaits, true)
	})
}

// One page that is broken says nothing of the upstream, nor does what clients' own requests meet with, nor what was
// given up; and half of the pages must fail.
func TestNotSick(t *testing.T) {
	fail := func(p *patient, page func(i int) string) {
		p.code = 500
		for i := range 10 * sampled {
			_ = p.ask(policy.ClientWaits, page(i))
		}
	}
	for name, c := range map[string]func(p *patient){
		"one page": func(p *patient) { fail(p, func(int) string { return "page" }) },
		"requests": func(p *patient) { fail(p, func(int) string { return "" }) },
		"well in between": func(p *patient) {
			for i := range 10 * sampled {
				p.code = 200
				if i%5 > 2 { // two of five
					p.code = 500
				}
				_ = p.ask(policy.ClientWaits, fmt.Sprint(i))
			}
		},
		"long ago": func(p *patient) {
			for range 10 {
				fail(p, func(i int) string { return fmt.Sprint(i % (sampled - 1)) })
				time.Sleep(2 * sampling)
			}
		},
		"given up": func(p *patient) {
			for i := range 10 * sampled {
				ctx, leave := context.WithCancel(p.t.Context())
				slot, err := p.Enter(ctx, At(policy.ClientWaits))
				if err != nil {
					p.t.Fatal(err)
				}
				slot.For(fmt.Sprint(i))
				leave()
				p.fault = dialFails // as a dial that is given up looks like
				_, _ = slot.Do(httptest.NewRequestWithContext(ctx, "GET", "http://upstream.test/", nil))
				slot.Leave()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(p *patient) {
				c(p)
				p.is("well")
			})
		})
	}
}

// One that tries, and is given up before it is sent or answered, makes room for another.
func TestTryIsGivenUp(t *testing.T) {
	inBubble(t, func(p *patient) {
		p.fault = dialFails
		for range unreached {
			_ = p.ask(policy.ClientWaits, "")
		}
		for range 3 {
			time.Sleep(later)
			slot, err := p.Enter(p.t.Context(), At(policy.StaleWaits))
			if err != nil {
				t.Fatal(err)
			}
			p.spared(policy.ClientWaits, true)
			slot.Leave()
			p.is("down")
		}
		time.Sleep(later)
		p.fault = nil
		p.spared(policy.ClientWaits, false)
		p.is("well")
	})
}

// An early refresh is dropped rather than queued (R26).
func TestEarlyRefreshDoesNotQueue(t *testing.T) {
	inBubble(t, func(p *patient) {
		var held []*Slot
		for range p.config.MaxConcurrent {
			s, err := p.Enter(p.t.Context(), At(policy.EarlyWaits))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, s)
		}
		if _, err := p.Enter(p.t.Context(), At(policy.EarlyWaits)); !errors.Is(err, ErrBusy) {
			t.Errorf("%v", err)
		}
		queued := make(chan *Slot)
		go func() {
			s, _ := p.Enter(p.t.Context(), At(policy.StaleWaits))
			queued <- s
		}()
		synctest.Wait()
		if s := p.Stats(); s.Queued != 1 {
			t.Errorf("%+v", s)
		}
		held[0].Leave()
		(<-queued).Leave()
		for _, s := range held[1:] {
			s.Leave()
		}
	})
}
