package fill

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// peers is how replicas ask each other, and what this one knows of the others.
type peers struct {
	client *http.Client
	mu     sync.Mutex
	known  map[string]peer // by address
}

// peer is what is known of one: the zero value is a stranger.
type peer struct {
	met  bool      // it has answered
	gone time.Time // since when its connections break; zero: they do not
}

// maxPeers bounds what is remembered: addresses come and go with deployments.
const maxPeers = 1024

// newPeers: no proxy in between, and connections that are kept.
func newPeers() *peers {
	return &peers{known: make(map[string]peer), client: &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}}
}

// meet remembers a peer that has answered.
func (p *peers) meet(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(address, peer{met: true})
}

// broke reports whether a connection that broke means that the peer's process is gone. By leaseTTL later whatever that
// process held has run out: who still holds leases then lives, and it is the line to it that breaks, as where a firewall
// or a proxy in between resets it. Nothing is taken from such a holder any more until it has answered: two replicas that
// cannot reach each other would take one lease from each other for ever, with a request upstream each time.
func (p *peers) broke(address string) (gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost(address, p.known[address])
}

// refused is broke of a connection that was refused, which says nothing of a stranger.
func (p *peers) refused(address string) (gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.known[address]
	return known != peer{} && p.lost(address, known)
}

func (p *peers) lost(address string, known peer) (gone bool) {
	if known.gone.IsZero() {
		known.gone = time.Now()
		p.put(address, known)
	}
	return time.Since(known.gone) < leaseTTL
}

func (p *peers) put(address string, known peer) {
	if _, there := p.known[address]; !there && len(p.known) >= maxPeers {
		clear(p.known)
	}
	p.known[address] = known
}
