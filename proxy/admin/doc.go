// Package admin is the operator's door, on a listener of its own: is it alive, is it ready, what is it doing, for
// which pages most, why would it answer so, and forget this page. Client is the other side of it, for the commands.
//
//	GET  /healthz      the process is alive
//	GET  /readyz       it wants traffic: 503 while draining, or while a required store is away
//	GET  /metrics      for Prometheus
//	GET  /api/status   version, store, gauges, upstreams
//	GET  /api/explain  ?url=…&method=…&header=Name:value: what would happen to this request, and why, without doing it
//	GET  /api/keys     ?sort=hits|misses|upstream_time: the hundred hottest pages of this replica
//	POST /api/purge    {"url": "https://…", "soft": true}: every variant, on every replica
//
// Who may ask: off loopback a token guards all but the first three. On loopback without one, only requests that
// name a loopback host are answered, so that a web page cannot reach it through a name of its own (DNS rebinding);
// and no page of another origin may post. Errors are problem details (RFC 9457) whose detail says what to do next.
package admin
