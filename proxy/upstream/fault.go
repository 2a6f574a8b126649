package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"weir/policy"
)

// FaultOf names an error of Enter or Do.
func FaultOf(err error) policy.Fault {
	var (
		op        *net.OpError
		dns       *net.DNSError
		cert      *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		record    tls.RecordHeaderError
		timeout   net.Error
		protocol  textproto.ProtocolError
		spared    *Spared
	)
	switch {
	case errors.As(err, &spared):
		return policy.Fault{Kind: policy.Spared, RetryAfter: spared.After}
	case errors.Is(err, ErrBusy):
		return policy.Fault{Kind: policy.Busy}
	case errors.As(err, &dns), errors.As(err, &cert), errors.As(err, &authority), errors.As(err, &record):
		return policy.Fault{Kind: policy.Refused}
	case errors.As(err, &op) && op.Op == "dial":
		return policy.Fault{Kind: policy.Refused}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return policy.Fault{Kind: policy.TimeoutBefore}
	case errors.As(err, &protocol), unreadable(err.Error()):
		return policy.Fault{Kind: policy.Garbage}
	}
	return policy.Fault{Kind: policy.Reset}
}

// unreadable recognises by their text the errors that net/http has no type for.
func unreadable(text string) bool {
	for _, part := range []string{"malformed", "Content-Length", "transfer encoding", "server response headers exceeded"} {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// FaultOfStatus names an answer that counts as a failure (RFC 5861 §4, and 429: asking again at once is what it forbids);
// ok is false for every other.
func FaultOfStatus(res *http.Response, now time.Time) (f policy.Fault, ok bool) {
	switch res.StatusCode {
	case 429, 500, 502, 503, 504:
		return policy.Fault{Kind: policy.BadStatus, Status: res.StatusCode, RetryAfter: retryAfter(res.Header, now)}, true
	}
	return policy.Fault{}, false
}

// retryAfter reads Retry-After (RFC 9110 §10.2.3): seconds or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if t, ok := policy.ParseDate(v, now); ok && t.After(now) {
		return t.Sub(now)
	}
	return 0
}
