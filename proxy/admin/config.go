package admin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Config says where the door is and what opens it.
type Config struct {
	Listen string `mapstructure:"listen"`
	Token  string `mapstructure:"token"` // off loopback it guards all but /healthz, /readyz and /metrics
}

// Validate reports every fault, each beginning with its key.
func (c Config) Validate() error {
	var faults []error
	if _, port, err := net.SplitHostPort(c.Listen); err != nil || !isPort(port) {
		faults = append(faults, fmt.Errorf("listen: %q is no address: write host:port, such as 127.0.0.1:8081", c.Listen))
	} else if c.Token == "" && !c.loopback() {
		faults = append(faults, fmt.Errorf("token: %s can be reached from elsewhere, so a token is needed: set it, or listen on 127.0.0.1", c.Listen))
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		faults = append(faults, errors.New("token: it travels in a header field: use visible ASCII without spaces"))
	}
	return errors.Join(faults...)
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// loopback reports whether only this machine can connect.
func (c Config) loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && isLoopback(host)
}

// isLoopback reports whether a name, without its port, means this machine and nothing else, whatever DNS says (RFC 6761 §6.3).
func isLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
