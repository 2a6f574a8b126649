// Weir is an HTTP reverse-proxy cache. This file is its command tree; serve.go is the life of a replica.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"weir/proxy/admin"
	"weir/proxy/config"
	"weir/store"
)

//go:embed config.yaml
var shipped []byte

func main() {
	if err := command().ExecuteContext(context.Background()); err != nil {
		if problems := (config.Problems{}); errors.As(err, &problems) {
			fmt.Fprintln(os.Stderr, "weir:", strings.ReplaceAll(err.Error(), "\n", "\nweir: "))
		} else if !errors.Is(err, errSaid) {
			fmt.Fprintln(os.Stderr, "weir:", err)
		}
		os.Exit(1)
	}
}

// errSaid: what went wrong has been printed already.
var errSaid = errors.New("said")

func said(err error) error {
	if err != nil {
		return errSaid
	}
	return nil
}

func command() *cobra.Command {
	serve := serveCommand("serve", "Answer clients (what weir does without a command)")
	root := serveCommand("weir", "An HTTP cache that keeps the herd off slow upstreams")
	root.Args = nil // a word that is no command is told which are
	root.Example = "  weir --upstream http://127.0.0.1:9000\n  weir serve --config weir.yaml"
	root.SilenceUsage, root.SilenceErrors = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serve, checkCommand(), configCommand(), purgeCommand(), warmCommand(), topCommand(), versionCommand(), healthCommand())
	return root
}

func serveCommand(name, short string) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}
	s := source(c)
	c.RunE = func(*cobra.Command, []string) error { return serve(*s, os.Stderr) }
	return c
}

// source gives a command the flags that say where a configuration comes from.
func source(c *cobra.Command) *config.Source {
	s := &config.Source{Default: shipped}
	f := c.Flags()
	f.StringVarP(&s.File, "config", "c", "", "configuration `file` (default: config.yaml here, if there is one)")
	f.StringVar(&s.Flags.Listen, "listen", "", "`address` for clients")
	f.StringVar(&s.Flags.Admin, "admin", "", "`address` of the admin port")
	f.StringVar(&s.Flags.Upstream, "upstream", "", "`url` of the one upstream; replaces upstreams and routes of the file")
	f.StringVar(&s.Flags.TTL, "ttl", "", "with --upstream: `lifetime` of answers that name none")
	f.StringVar(&s.Flags.Grace, "grace", "", "with --upstream: `time` a stale answer may be served while it is refreshed")
	f.StringVar(&s.Flags.Redis, "redis", "", "`addresses` of the shared store, by commas")
	f.StringVar(&s.Flags.LogLevel, "log-level", "", "debug, info, warn or error: the `least` that is logged")
	return s
}

func checkCommand() *cobra.Command {
	c := &cobra.Command{Use: "check", Short: "Say whether a configuration is right, and what is wrong with it", Args: cobra.NoArgs}
	s := source(c)
	asJSON := c.Flags().Bool("json", false, "print as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		out := c.OutOrStdout()
		loaded, err := config.Load(*s)
		problems := config.Problems{}
		if err != nil && !errors.As(err, &problems) {
			return err
		}
		doubts, loose := config.Problems{}, config.Problems{}
		if err == nil {
			if doubts, err = config.Warnings(*s); err != nil {
				return err
			}
			if loose, err = config.Loosened(*s); err != nil {
				return err
			}
		}
		if *asJSON {
			return errors.Join(printJSON(out, map[string]any{"ok": err == nil, "problems": problems, "warnings": doubts, "loosened": loose}), said(err))
		}
		colour := colours(out)
		for _, p := range problems {
			fmt.Fprintln(out, colour.bad+p.String()+colour.plain)
		}
		if err == nil {
			fmt.Fprintln(out, colour.good+"ok"+colour.plain+": "+loaded.Summary())
			for _, l := range loose {
				fmt.Fprintln(out, "loosened: "+l.String())
			}
			for _, doubt := range doubts {
				fmt.Fprintln(out, "warning: "+doubt.String())
			}
		}
		return said(err)
	}
	return c
}

type palette struct{ good, bad, plain string }

// colours are for people: none when the output is no terminal.
func colours(w io.Writer) palette {
	if os.Getenv("NO_COLOR") != "" || !onTerminal(w) {
		return palette{}
	}
	return palette{"\x1b[32m", "\x1b[31m", "\x1b[0m"}
}

func onTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile {
		return false
	}
	s, err := f.Stat()
	return err == nil && s.Mode()&os.ModeCharDevice != 0
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Print the configuration in force, every key of it; secrets are masked", Args: cobra.NoArgs}
	s := source(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := config.InForce(*s)
		if err != nil {
			return err
		}
		text, err := loaded.YAML()
		fmt.Fprint(c.OutOrStdout(), string(text))
		return err
	}
	return c
}

// client gives a command the flags that say which replica to ask.
func client(c *cobra.Command) func() (admin.Client, error) {
	s := &config.Source{Default: shipped}
	c.Flags().StringVarP(&s.File, "config", "c", "", "the replica's configuration `file` (default: config.yaml here, if there is one)")
	c.Flags().StringVar(&s.Flags.Admin, "admin", "", "`address` of its admin port")
	return func() (admin.Client, error) {
		a, err := config.AdminOf(*s)
		return admin.Client{Address: a.Listen, Token: a.Token}, err
	}
}

func purgeCommand() *cobra.Command {
	c := &cobra.Command{Use: "purge [URL]", Short: "Forget a page, or all that a flag names: every variant, on every replica", Args: cobra.MaximumNArgs(1),
		Example: "  weir purge http://www.example.com/catalogue/1\n  weir purge --soft --tag red\n  WEIR_ADMIN_TOKEN=secret weir purge --admin 10.0.0.7:8081 --prefix www.example.com/catalogue/"}
	replica, o, f := client(c), admin.Order{}, c.Flags()
	f.BoolVar(&o.Soft, "soft", false, "keep it as stale: it may be served while it is refreshed, as grace allows")
	f.StringVar(&o.Tag, "tag", "", "what the upstream gave this `tag`")
	f.StringVar(&o.Prefix, "prefix", "", "`urls` that begin so, by http and https")
	f.StringVar(&o.Host, "host", "", "a whole `host`")
	f.StringVar(&o.Route, "route", "", "what came by the route of this `name`")
	f.BoolVar(&o.All, "all", false, "everything")
	c.RunE = func(c *cobra.Command, args []string) error {
		ask, err := replica()
		if err != nil {
			return err
		}
		o.URL = strings.Join(args, "")
		purged, err := ask.Purge(c.Context(), o)
		if err == nil {
			fmt.Fprintf(c.OutOrStdout(), "purged %s (entries: %s; replicas that confirmed it: %d)\n", o, estimate(purged), purged.Replicas)
		}
		if err == nil && purged.Estimate == 0 && o.URL != "" {
			fmt.Fprintln(c.OutOrStdout(), "nothing was stored under this name: scheme, host and port are part of it, as clients write them")
		}
		return err
	}
	return c
}

func warmCommand() *cobra.Command {
	c := &cobra.Command{Use: "warm [JOB]", Short: "Bring the pages of a job of the file anew, or of all jobs, fresh or not", Args: cobra.MaximumNArgs(1),
		Example: "  weir warm hot\n  weir warm --admin 10.0.0.7:8081 && echo deployed"}
	replica := client(c)
	asJSON := c.Flags().Bool("json", false, "print a line of JSON for each page, and one with the sum")
	c.RunE = func(c *cobra.Command, args []string) error {
		ask, err := replica()
		if err != nil {
			return err
		}
		tell := progress(c.OutOrStdout())
		if *asJSON {
			lines := json.NewEncoder(c.OutOrStdout())
			tell = func(p admin.Page) { _ = lines.Encode(p) }
		}
		sum, err := ask.Warm(c.Context(), strings.Join(args, ""), tell)
		switch {
		case err != nil:
			return err
		case *asJSON:
			err = json.NewEncoder(c.OutOrStdout()).Encode(sum)
		default:
			fmt.Fprintf(c.OutOrStdout(), "fetched %d, cannot be kept %d, failed %d\n", sum.Fetched, sum.Unkept, sum.Failed)
		}
		if err == nil && sum.Failed > 0 {
			err = fmt.Errorf("%d pages were not warmed", sum.Failed)
		}
		return err
	}
	return c
}

// progress tells of pages that were not fetched and, on a terminal, of how many are done.
func progress(w io.Writer) func(admin.Page) {
	live := onTerminal(w)
	return func(p admin.Page) {
		if live {
			fmt.Fprint(w, "\r\x1b[K")
		}
		if p.End != "fetched" {
			fmt.Fprintf(w, "%s: %s: %s\n", p.End, p.URL, p.Why)
		}
		if live && p.Done < p.Pages {
			fmt.Fprintf(w, "%s: %d of %d", p.Job, p.Done, p.Pages)
		}
	}
}

func estimate(p store.Purged) string {
	if p.Estimate < 0 {
		return "unknown"
	}
	return fmt.Sprintf("about %d", p.Estimate)
}

// healthCommand is what a container's health check runs: there is no other program in the image.
func healthCommand() *cobra.Command {
	c := &cobra.Command{Use: "healthcheck", Short: "Exit 0 when the replica here wants traffic", Args: cobra.NoArgs, Hidden: true}
	replica := client(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		ask, err := replica()
		if err != nil {
			return err
		}
		return ask.Ready(c.Context())
	}
	return c
}

func versionCommand() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Print which build this is", Args: cobra.NoArgs}
	asJSON := c.Flags().Bool("json", false, "print as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		b := build()
		if *asJSON {
			return printJSON(c.OutOrStdout(), b)
		}
		fmt.Fprintln(c.OutOrStdout(), strings.TrimSpace(fmt.Sprintf("weir %s (%s) %s", b["version"], b["go"], b["revision"])))
		return nil
	}
	return c
}

// build is what the linker knows.
func build() map[string]string {
	b := map[string]string{"version": "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		b["version"], b["go"] = info.Main.Version, info.GoVersion
		for _, s := range info.Settings {
			if strings.HasPrefix(s.Key, "vcs.") {
				b[strings.TrimPrefix(s.Key, "vcs.")] = s.Value
			}
		}
	}
	return b
}
