package config

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"weir/policy"
	"weir/proxy/admin"
)

// Ordinary is the file that is read when none is named, if it is there.
const Ordinary = "config.yaml"

// Source is where a Config comes from, beside the environment.
type Source struct {
	Default []byte // the shipped config.yaml
	File    string // "": Ordinary, if there is one
	Flags   Flags
}

// separator stands between the parts of viper's keys: nothing a user can write, so no key is ever split.
const separator = "\x1f"

// Load reads all layers and checks what they make together. Its error is Problems.
func Load(s Source) (*Config, error) {
	c, set, err := s.layers()
	if err != nil {
		return nil, err
	}
	if wrong := c.check(set); len(wrong) > 0 {
		return nil, sorted(wrong)
	}
	return c, nil
}

// InForce is Load for who only wants to see it: a file without upstreams and routes, or none, is the defaults.
func InForce(s Source) (*Config, error) {
	c, set, err := s.layers()
	if err != nil {
		return nil, err
	}
	k := &checker{set: set}
	if k.stated(c); len(k.wrong) > 0 {
		return nil, sorted(k.wrong)
	}
	return c, nil
}

// AdminOf reads where a replica with this configuration has its admin port. It does not mind a file that names no upstreams.
func AdminOf(s Source) (admin.Config, error) {
	c, _, err := s.layers()
	if err != nil {
		return admin.Config{}, err
	}
	return c.Admin, nil
}

func (s Source) layers() (*Config, places, error) {
	file := &reader{file: s.File, set: places{}}
	fromFile := file.load()
	shipped := &reader{file: "built-in " + Ordinary, set: places{}}
	fromShipped := shipped.document(s.Default)
	wrong := slices.Concat(shipped.wrong, file.wrong, environment(os.Environ(), file.set))
	flags, bad := s.Flags.read(file.set)
	if wrong = append(wrong, bad...); len(wrong) > 0 {
		return nil, nil, sorted(wrong)
	}
	c, err := decode(fromShipped, fromFile, flags)
	if err != nil {
		return nil, nil, Problems{{Source: file.file, Text: err.Error()}}
	}
	return c, file.set, nil
}

// load reads the file, if there is one to read.
func (r *reader) load() map[string]any {
	name := cmp.Or(r.file, Ordinary)
	text, err := os.ReadFile(name)
	if r.file == "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r.file = name
	r.set[""] = Problem{Source: name}
	if err != nil {
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = path.Err
		}
		r.wrong = append(r.wrong, Problem{Source: name, Text: "cannot be read: " + err.Error()})
		return nil
	}
	return r.document(text)
}

// decode lays the layers over each other. The shipped file has every key, so viper knows every variable's name.
func decode(shipped, file map[string]any, flags map[string]any) (*Config, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter(separator), viper.EnvKeyReplacer(strings.NewReplacer(separator, "_")))
	v.SetEnvPrefix(strings.TrimSuffix(envPrefix, "_"))
	v.AutomaticEnv()
	for _, layer := range []map[string]any{shipped, file} {
		if err := v.MergeConfigMap(layer); err != nil {
			return nil, err
		}
	}
	for path, value := range flags {
		v.Set(strings.ReplaceAll(path, ".", separator), value)
	}
	var c Config
	if err := v.Unmarshal(&c, strict); err != nil {
		return nil, err
	}
	return &c, c.inherit(v)
}

// strict is how a map becomes a struct: nothing left over, nothing converted but text, and a list written beneath
// another replaces it (mapstructure would write into the other's array).
func strict(d *mapstructure.DecoderConfig) {
	d.ErrorUnused = true
	d.WeaklyTypedInput = false
	d.ZeroFields = true
	d.DecodeHook = func(from, to reflect.Type, data any) (any, error) {
		if from.Kind() != reflect.String || to.Kind() == reflect.String || isBranch(to) {
			return data, nil
		}
		return parse(data.(string), to)
	}
}

// inherit decodes the lists once more, each entry over what it inherits.
func (c *Config) inherit(v *viper.Viper) error {
	for i, entry := range v.Get("upstreams").([]any) {
		c.Upstreams[i] = newUpstream()
		if err := over(&c.Upstreams[i], entry); err != nil {
			return err
		}
	}
	for i, entry := range v.Get("routes").([]any) {
		c.Routes[i] = policy.Route{Cache: c.Cache}
		if err := over(&c.Routes[i], entry); err != nil {
			return err
		}
	}
	for i, entry := range v.Get("warm").([]any) {
		c.Warm[i] = newWarm()
		if err := over(&c.Warm[i], entry); err != nil {
			return err
		}
	}
	return nil
}

func over(target, entry any) error {
	options := &mapstructure.DecoderConfig{Result: target}
	strict(options)
	d, err := mapstructure.NewDecoder(options)
	if err != nil {
		return err
	}
	return d.Decode(entry)
}

// sorted puts problems in the order of the file, and what stands nowhere in it at the end.
func sorted(p Problems) Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		nowhere := func(p Problem) int { return min(p.Line, 1) * -1 }
		return cmp.Or(nowhere(a)-nowhere(b), a.Line-b.Line, cmp.Compare(a.Text, b.Text))
	})
	return p
}
