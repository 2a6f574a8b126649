package policy

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestNotModified(t *testing.T) {
	eachScene(t, "notmodified.txt", func(t *testing.T, s scene) string {
		if NotModified(s.request(t), s.stored(t)) {
			return "304"
		}
		return "whole"
	})
}

func TestValidators(t *testing.T) {
	eachScene(t, "validators.txt", func(t *testing.T, s scene) string { return printHeader(Validators(s.stored(t))) })
}

func TestFreshen(t *testing.T) {
	eachScene(t, "freshen.txt", func(t *testing.T, s scene) string {
		p, stored := s.policy(t), s.stored(t)
		before := stored.Header.Clone()
		plan, res := p.Plan(s.request(t)), s.notModified(t)
		adm := p.Freshen(plan, stored, res, Moment{Now: res.Arrived})
		if !maps.EqualFunc(before, stored.Header, slices.Equal) {
			t.Errorf("the stored header was written to: %v", stored.Header)
		}
		switch {
		case adm.Keep == 0:
			return "not kept: " + adm.Reason.String()
		case adm.Changed || adm.Private || adm.Reason != None || adm.Stored.Status != stored.Status:
			t.Errorf("a confirmed answer that is no more what it was: %+v", adm)
		}
		return fmt.Sprintf("fresh %s\n%s", adm.Stored.Lifetime(), printHeader(adm.Stored.Header))
	})
}

// TestHeaded holds the table of what HEAD tells of a stored answer to GET: "upstream 200 +70s" is what it brought, then.
func TestHeaded(t *testing.T) {
	eachScene(t, "headed.txt", func(t *testing.T, s scene) string {
		p := s.policy(t)
		up, _ := s.subject("upstream")
		head := answer(t, up)
		head.Arrived = head.Arrived.Add(length(t, up.words[2]))
		head.Asked = head.Arrived
		stored := s.kept(t, p)
		delete(stored.Header, "Date") // that of the arrival, which a table need not repeat
		adm, outdated := p.Headed(p.Plan(s.request(t)), *stored, head, Moment{Now: head.Arrived})
		switch {
		case outdated && adm.Keep == 0:
			return "outdated"
		case adm.Keep == 0:
			return "nothing"
		}
		return fmt.Sprintf("fresh %s\n%s", adm.Stored.Lifetime(), printHeader(adm.Stored.Header))
	})
}

// notModified is the scene's "304 +70s".
func (s scene) notModified(t *testing.T) Response {
	t.Helper()
	for _, x := range s.subjects {
		if x.words[0] == "304" {
			later, err := time.ParseDuration(x.words[1])
			if err != nil {
				t.Fatal(err)
			}
			at := epoch().Add(later)
			return Response{Status: http.StatusNotModified, Header: x.header, Asked: at, Arrived: at}
		}
	}
	t.Fatalf("line %d: no 304", s.line)
	return Response{}
}

// However often an answer is confirmed it stays of one size, keeps its validator, and says what the last 304 said.
func TestFreshenManyTimes(t *testing.T) {
	s := scene{subjects: []subject{
		{words: []string{"stored", "200"}, header: http.Header{"Etag": {`"a"`}, "Cache-Control": {"max-age=60"}, "Link": {"<1>", "<2>"}}},
		{words: []string{"GET", "/"}, header: http.Header{}},
	}}
	p, stored := s.policy(t), s.stored(t)
	plan := p.Plan(s.request(t))
	for n := range 200 {
		at := stored.Arrived.Add(70 * time.Second)
		seq := strconv.Itoa(n)
		res := Response{Status: http.StatusNotModified, Asked: at, Arrived: at, Header: http.Header{"Link": {"<" + seq + ">", "<b>"}, "X-Seq": {seq}}}
		adm := p.Freshen(plan, stored, res, Moment{Now: at})
		stored = adm.Stored
		want := http.Header{"Etag": {`"a"`}, "Cache-Control": {"max-age=60"}, "Link": {"<" + seq + ">", "<b>"}, "X-Seq": {seq},
			"Date": {at.Format(http.TimeFormat)}}
		if !maps.EqualFunc(stored.Header, want, slices.Equal) || stored.Lifetime() != time.Minute {
			t.Fatalf("after %d: %v, fresh for %v", n+1, stored.Header, stored.Lifetime())
		}
	}
}

// What the grammar of RFC 9110 §8.8.3 and §5.6.1 calls a list of tags must be read as a second, plainer reader does;
// what it does not must still be read in one pass, without inventing a byte.
func FuzzTags(f *testing.F) {
	for _, seed := range []string{`"a"`, `W/"a", "b"`, `"a,b",, "c\"`, `"open, "x`, `*`, `,`, ` "a"x ,W/`, "\"\xe9\""} {
		f.Add(seed)
	}
	const tag = `(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"`
	one := regexp.MustCompile(tag)
	list := regexp.MustCompile(`^[ \t,]*` + tag + `(?:[ \t]*,[ \t,]*` + tag + `)*[ \t,]*$`)
	f.Fuzz(func(t *testing.T, line string) {
		latin := []rune{} // the expressions match characters, so each byte is made one
		for _, b := range []byte(line) {
			latin = append(latin, rune(b))
		}
		got := slices.Collect(tags([]string{string(latin)}))
		if list.MatchString(string(latin)) {
			if want := one.FindAllString(string(latin), -1); !slices.Equal(got, want) {
				t.Fatalf("%q is read as %q, not %q", line, got, want)
			}
			for _, member := range got {
				if !anyTag([]string{string(latin)}, member) {
					t.Fatalf("%q does not match its own member %q", line, member)
				}
			}
		}
		rest := string(latin)
		for _, member := range got {
			_, after, found := strings.Cut(rest, member)
			if !found || member == "" {
				t.Fatalf("%q: member %q is not of it, or not in its place", line, member)
			}
			rest = after
		}
	})
}
