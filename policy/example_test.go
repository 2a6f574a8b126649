package policy_test

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"weir/policy"
)

// One page through its life: brought, fresh, stale within its window, and standing in for an upstream that failed.
func Example() {
	p, err := policy.New(policy.Config{
		Upstreams: []string{"shop"},
		Routes:    []policy.Route{{Name: "all", Upstream: "shop", Cache: policy.Cache{StaleIfError: 24 * time.Hour}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan := p.Plan(policy.Request{Method: "GET", Scheme: "http", Host: "shop.test", URL: &url.URL{Path: "/shoes"}})
	fmt.Println(plan.Action, plan.Key.Primary)
	fmt.Println(p.Decide(plan, nil, policy.Moment{}).Reason)

	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	head := http.Header{"Cache-Control": {"max-age=60, stale-while-revalidate=30"}}
	brought := p.Admit(plan, nil, policy.Response{Status: 200, Header: head, Asked: noon, Arrived: noon}, policy.Moment{Now: noon})
	for _, after := range []time.Duration{10 * time.Second, 70 * time.Second, 100 * time.Second} {
		d := p.Decide(plan, &brought.Stored, policy.Moment{Now: noon.Add(after)})
		fmt.Println(after, d.Action, d.Reason)
	}
	d := p.Rescue(plan, &brought.Stored, policy.Fault{Kind: policy.Refused}, policy.Moment{Now: noon.Add(time.Hour)})
	fmt.Println(d.Action, d.Reason)

	// Output:
	// lookup shop http://shop.test/shoes
	// uri-miss
	// 10s serve fresh
	// 1m10s serve+refresh stale-refresh
	// 1m40s fetch stale-entry
	// serve stale-if-error
}
