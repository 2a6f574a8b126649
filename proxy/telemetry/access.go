package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/textproto"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/policy"
	"weir/proxy"
	"weir/proxy/fill"
)

// exchangeLine is one exchange as a log record, dated when it arrived. What does not apply is left out.
func exchangeLine(r proxy.Report) slog.Record {
	l := slog.NewRecord(r.Time, slog.LevelInfo, "exchange", 0)
	l.AddAttrs(
		slog.String("client", plain(r.Client)),
		slog.String("method", plain(r.Method)),
		slog.String("scheme", plain(r.Scheme)),
		slog.String("host", plain(r.Host)),
		slog.String("path", plain(r.Path)),
		slog.Int("status", r.Status),
		slog.Int64("bytes", r.Bytes),
		slog.Float64("duration_ms", milliseconds(r.Duration)),
		slog.String("action", r.Action.String()),
		slog.String("reason", r.Reason.String()),
		known(slog.String("detail", detail(r.Detail))),
		known(slog.String("route", r.Route)),
		known(slog.String("upstream", r.Upstream)),
		known(slog.Int("fwd_status", r.FwdStatus)),
		known(slog.Bool("collapsed", r.Collapsed)),
		known(slog.Bool("stored", r.Stored)),
		age(r),
		known(slog.Float64("first_byte_ms", milliseconds(r.FirstByte))),
		known(slog.Float64("waited_ms", milliseconds(r.Waited))),
		known(slog.String("states", strings.Join(r.States, ">"))),
		known(slog.String("store_fault", r.StoreFault)),
		known(slog.Bool("aborted", r.Aborted)),
		known(slog.String("err", cause(r.Err))),
	)
	return l
}

// fillLine is one fill as a log record, dated when it started.
func fillLine(r fill.Report) slog.Record {
	l := slog.NewRecord(r.Started, slog.LevelDebug, "fill", 0)
	l.AddAttrs(
		slog.String("route", r.Route),
		slog.String("upstream", r.Upstream),
		slog.String("why", string(r.Why)),
		slog.String("end", string(r.End)),
		slog.Int("status", r.Status),
		slog.Int64("bytes", r.Bytes),
		slog.Int("requests", r.Requests),
		slog.Float64("duration_ms", milliseconds(r.Total)),
		known(slog.String("reason", detail(r.Reason))),
		known(slog.Float64("queued_ms", milliseconds(r.Queued))),
		known(slog.Float64("head_ms", milliseconds(r.Head))),
		known(slog.String("store_fault", r.StoreFault)),
		known(slog.String("err", cause(r.Err))),
	)
	return l
}

// longest is where a text from outside is cut.
const longest = 2048

// plain makes a text from outside fit for a terminal and a line: JSON lets DEL and the C1 controls through.
func plain(s string) string {
	if len(s) > longest {
		cut := longest
		for cut > longest-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// cause is an error without the field it may quote: net/textproto repeats a malformed line whole, Set-Cookie and all.
func cause(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	var quoting textproto.ProtocolError
	if errors.As(err, &quoting) {
		what, _, _ := strings.Cut(string(quoting), `"`)
		text = strings.ReplaceAll(text, string(quoting), what+"(not shown)")
	}
	return plain(text)
}

// known is the attribute, or, when it has no value, the empty one, which is not printed.
func known(a slog.Attr) slog.Attr {
	empty := false
	switch a.Value.Kind() {
	case slog.KindBool:
		empty = !a.Value.Bool()
	case slog.KindInt64:
		empty = a.Value.Int64() == 0
	case slog.KindFloat64:
		empty = a.Value.Float64() == 0
	case slog.KindString:
		empty = a.Value.String() == ""
	}
	if empty {
		return slog.Attr{}
	}
	return a
}

// age is known of what was kept, and 0 is one.
func age(r proxy.Report) slog.Attr {
	if !r.Hit {
		return slog.Attr{}
	}
	return slog.Int64("age", int64(r.Age/time.Second))
}

func detail(r policy.Reason) string {
	if r == policy.None {
		return ""
	}
	return r.String()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// print writes a record; nobody can be told when that fails.
func print(h slog.Handler, l slog.Record) { _ = h.Handle(context.Background(), l) }
