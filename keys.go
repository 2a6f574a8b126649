package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/proxy"
	"weir/proxy/admin"
	"weir/proxy/fill"
	"weir/proxy/hot"
)

// shown is how many hot pages are told of.
const shown = 100

// observers are told everything, one after the other.
type observers []proxy.Observer

func (o observers) Exchange(r proxy.Report) {
	for _, one := range o {
		one.Exchange(r)
	}
}

func (o observers) Fill(r fill.Report) {
	for _, one := range o {
		one.Fill(r)
	}
}

// keys are the hottest pages, for the admin port.
func (r *replica) keys(by string) []admin.Key {
	all := make([]admin.Key, 0, shown)
	for _, p := range r.hot.Top(hot.By(by), shown) {
		k := admin.Key{Requests: p.Hits + p.Misses, Misses: p.Misses, Busy: p.Upstream}
		k.Upstream, k.URL, _ = strings.Cut(p.Name, " ")
		if k.Requests > 0 {
			k.HitShare = p.Hits / k.Requests
		}
		all = append(all, k)
	}
	return all
}

// pin has what is asked for most stay in memory, as it changes.
func (r *replica) pin(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			var pages []string
			for _, p := range r.hot.Top(hot.Hits, shown) {
				pages = append(pages, p.Name)
			}
			r.memory.Pin(pages)
		case <-ctx.Done():
			return
		}
	}
}

func topCommand() *cobra.Command {
	c := &cobra.Command{Use: "top", Short: "Show the hottest pages of a replica", Args: cobra.NoArgs,
		Example: "  weir top --sort misses\n  watch weir top --admin 10.0.0.7:8081"}
	replica := client(c)
	sort := c.Flags().String("sort", "hits", "hits, misses or upstream_time: what makes a page `hot`")
	most := c.Flags().Int("most", 20, "so `many` pages at most, up to 100")
	asJSON := c.Flags().Bool("json", false, "print as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ask, err := replica()
		if err != nil {
			return err
		}
		k, err := ask.Keys(c.Context(), *sort)
		if err != nil {
			return err
		}
		k.Keys = k.Keys[:min(len(k.Keys), max(*most, 0))]
		if *asJSON {
			return printJSON(c.OutOrStdout(), k)
		}
		return printKeys(c.OutOrStdout(), k.Keys)
	}
	return c
}

func printKeys(w io.Writer, keys []admin.Key) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "requests/s\thits\tmisses/s\tupstream busy\t  page")
	for _, k := range keys {
		fmt.Fprintf(t, "%.1f\t%.0f%%\t%.1f\t%.2f\t  %s (%s)\n", k.Requests, 100*k.HitShare, k.Misses, k.Busy, k.URL, k.Upstream)
	}
	return t.Flush()
}
