package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"weir/store"
)

// maxAnswer is more than any answer of ours.
const maxAnswer = 1 << 20

// askTime bounds a question that came without a deadline: a little longer than a purge may take.
const askTime = purgeTime + 5*time.Second

// Client asks a running replica, for the commands.
type Client struct {
	Address string // host:port, as admin.listen has it
	Token   string
}

// Ready returns nil when the replica wants traffic, else an error that says why it does not.
func (c Client) Ready(ctx context.Context) error {
	r, err := c.question(ctx, http.MethodGet, "/readyz", nil)
	if err != nil {
		return err
	}
	return c.ask(r, nil)
}

// Purge covers what the order names, on every replica.
func (c Client) Purge(ctx context.Context, o Order) (store.Purged, error) {
	if err := o.check(); err != nil {
		return store.Purged{}, err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return store.Purged{}, err
	}
	r, err := c.question(ctx, http.MethodPost, "/api/purge", bytes.NewReader(body))
	if err != nil {
		return store.Purged{}, err
	}
	var got receipt
	if err := c.ask(r, &got); err != nil {
		return store.Purged{}, err
	}
	p := store.Purged{Estimate: -1, Replicas: got.Replicas}
	if got.Entries != nil {
		p.Estimate = *got.Entries
	}
	return p, nil
}

func (c Client) question(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	address, err := dialled(c.Address)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return r, nil
}

// ask sends a question and reads the answer into into, which may be nil.
func (c Client) ask(r *http.Request, into any) error {
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	res, err := c.send(r.WithContext(ctx))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return understand(res, into)
}

func (c Client) send(r *http.Request) (*http.Response, error) {
	// A transport of its own: one question is asked, and not through the proxy that the environment may name.
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("no answer from the admin port at %s (%w): is weir running there, and is that its admin.listen?", c.Address, err)
	}
	return res, nil
}

// understand turns an answer into what was asked for, or into an error that says what to do next.
func understand(res *http.Response, into any) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the admin port's answer broke off (%w): ask again", err)
	}
	var p problem
	if res.StatusCode != http.StatusOK && json.Unmarshal(text, &p) == nil && p.Detail != "" {
		return fmt.Errorf("%s (%d)", p.Detail, res.StatusCode)
	}
	if res.StatusCode != http.StatusOK || !json.Valid(text) {
		return fmt.Errorf("what listens there answered %s and is not weir's admin port: see admin.listen", res.Status)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// dialled is where to connect: what listens on every address is asked through this machine's own.
func dialled(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || !isPort(port) {
		return "", fmt.Errorf("%q is no address of an admin port: write host:port, such as 127.0.0.1:8081", address)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}
