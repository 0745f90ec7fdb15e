package ctl

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coordd/coordd/client"
)

// getFlags is the flags of get.
type getFlags struct {
	consistency, order, sortBy           string
	limit, rev                           int64
	prefix, fromKey                      bool
	keysOnly, countOnly, valueOnly       bool
	minCreate, maxCreate, minMod, maxMod int64
	stream                               bool
}

func (f *getFlags) register(s *pflag.FlagSet) {
	s.StringVar(&f.consistency, "consistency", "l", "l: linearizable, or s: serializable, what the member knows")
	s.StringVar(&f.order, "order", "", "ASCEND or DESCEND")
	s.StringVar(&f.sortBy, "sort-by", "", "CREATE, KEY, MODIFY, VALUE or VERSION")
	s.Int64Var(&f.limit, "limit", 0, "most pairs to give; 0 is all")
	s.BoolVar(&f.prefix, "prefix", false, "all keys that begin with the key")
	s.BoolVar(&f.fromKey, "from-key", false, "all keys from the key on")
	s.Int64Var(&f.rev, "rev", 0, "read at this revision; 0 is the current one")
	s.BoolVar(&f.keysOnly, "keys-only", false, "without the values")
	s.BoolVar(&f.countOnly, "count-only", false, "only the number of keys; with -w fields or json")
	s.BoolVar(&f.valueOnly, "print-value-only", false, "only the values; with -w simple")
	s.Int64Var(&f.minCreate, "min-create-rev", 0, "only keys created at this revision or later")
	s.Int64Var(&f.maxCreate, "max-create-rev", 0, "only keys created at this revision or earlier")
	s.Int64Var(&f.minMod, "min-mod-rev", 0, "only keys changed at this revision or later")
	s.Int64Var(&f.maxMod, "max-mod-rev", 0, "only keys changed at this revision or earlier")
	s.BoolVar(&f.stream, "stream", false, "fetch piece by piece; for answers too large for one message")
}

// span gives the options for which keys are meant, and the key, which may be left out of a range.
func span(args []string, prefix, fromKey bool) (key string, opts []client.KeysOption, err error) {
	if prefix && fromKey {
		return "", nil, fail(exitArguments, "--prefix and --from-key exclude each other")
	}
	if len(args) > 1 && (prefix || fromKey) {
		return "", nil, fail(exitArguments, "a range_end excludes --prefix and --from-key")
	}
	switch {
	case len(args) == 0 && !prefix && !fromKey:
		return "", nil, fail(exitArguments, "the key is missing")
	case len(args) > 0:
		key = args[0]
	}
	switch {
	case prefix:
		opts = append(opts, client.WithPrefix())
	case fromKey:
		opts = append(opts, client.WithFromKey())
	case len(args) > 1:
		opts = append(opts, client.WithRange(args[1]))
	}
	return key, opts, nil
}

// options gives the key and the options that the flags mean.
func (f *getFlags) options(args []string) (string, []client.GetOption, error) {
	key, keys, err := span(args, f.prefix, f.fromKey)
	if err != nil {
		return "", nil, err
	}
	if f.keysOnly && f.countOnly {
		return "", nil, fail(exitArguments, "--keys-only and --count-only exclude each other")
	}
	var opts []client.GetOption
	for _, o := range keys {
		opts = append(opts, o)
	}
	opts = append(opts, client.WithLimit(f.limit), client.WithRev(f.rev),
		client.WithCreateRevBetween(f.minCreate, f.maxCreate), client.WithModRevBetween(f.minMod, f.maxMod))
	serializable, err := consistency(f.consistency)
	if err != nil {
		return "", nil, err
	}
	if serializable {
		opts = append(opts, client.WithSerializable())
	}
	if f.keysOnly {
		opts = append(opts, client.WithKeysOnly())
	}
	if f.countOnly {
		opts = append(opts, client.WithCountOnly())
	}
	sorted, err := f.sort()
	if err != nil {
		return "", nil, err
	}
	return key, append(opts, sorted...), nil
}

// sort gives the option of --order and --sort-by.
func (f *getFlags) sort() ([]client.GetOption, error) {
	if f.order == "" && f.sortBy == "" {
		return nil, nil
	}
	targets := map[string]client.SortTarget{
		"": client.SortByKey, "KEY": client.SortByKey, "CREATE": client.SortByCreateRevision,
		"MODIFY": client.SortByModRevision, "VALUE": client.SortByValue, "VERSION": client.SortByVersion,
	}
	orders := map[string]client.SortOrder{"": client.SortAscend, "ASCEND": client.SortAscend, "DESCEND": client.SortDescend}
	target, ok := targets[strings.ToUpper(f.sortBy)]
	if !ok {
		return nil, fail(exitFeature, "bad sort target %q; use CREATE, KEY, MODIFY, VALUE or VERSION", f.sortBy)
	}
	order, ok := orders[strings.ToUpper(f.order)]
	if !ok {
		return nil, fail(exitFeature, "bad sort order %q; use ASCEND or DESCEND", f.order)
	}
	return []client.GetOption{client.WithSort(target, order)}, nil
}

// consistency reads l or s; true is serializable.
func consistency(v string) (bool, error) {
	switch v {
	case "l":
		return false, nil
	case "s":
		return true, nil
	}
	return false, fail(exitFeature, "unknown consistency %q; use l or s", v)
}

func newGet(s *settings) *cobra.Command {
	var f getFlags
	c := &cobra.Command{
		Use:     "get <key> [range_end]",
		Short:   "Read a key, or several",
		Example: "  coordd get greeting\n  coordd get --prefix /config/ --keys-only",
		Args:    arguments(0, 2, "a key and perhaps the end of a range"),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, opts, err := f.options(args)
			if err != nil {
				return err
			}
			if f.countOnly && s.format == "simple" {
				return fail(exitArguments, "--count-only needs -w fields or -w json")
			}
			if f.valueOnly && s.format != "simple" {
				return fail(exitArguments, "--print-value-only needs -w simple")
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				if f.stream {
					return scan(ctx, c, p, key, opts, f.valueOnly)
				}
				resp, err := c.Get(ctx, key, opts...)
				if err != nil {
					return err
				}
				return p.show(rangeView(resp, f.valueOnly))
			})
		},
	}
	f.register(c.Flags())
	return c
}

// putFlags is the flags of put.
type putFlags struct {
	lease                            string
	prevKV, ignoreValue, ignoreLease bool
}

func (f *putFlags) register(s *pflag.FlagSet) {
	s.StringVar(&f.lease, "lease", "0", "lease to tie the key to, in hex")
	s.BoolVar(&f.prevKV, "prev-kv", false, "print the pair as it was before")
	s.BoolVar(&f.ignoreValue, "ignore-value", false, "keep the value the key has")
	s.BoolVar(&f.ignoreLease, "ignore-lease", false, "keep the lease the key has")
}

// options gives the options that the flags mean.
func (f *putFlags) options() ([]client.PutOption, error) {
	id, err := leaseID(f.lease)
	if err != nil {
		return nil, err
	}
	var opts []client.PutOption
	if id != 0 {
		opts = append(opts, client.WithLease(id))
	}
	if f.prevKV {
		opts = append(opts, client.WithPrevKV())
	}
	if f.ignoreValue {
		opts = append(opts, client.WithIgnoreValue())
	}
	if f.ignoreLease {
		opts = append(opts, client.WithIgnoreLease())
	}
	return opts, nil
}

func newPut(s *settings) *cobra.Command {
	var f putFlags
	c := &cobra.Command{
		Use:   "put <key> [value]",
		Short: "Write a key",
		Long: "Write a key. Without a value it is read from the standard input. Put -- before a key or value that begins\n" +
			"with a dash.",
		Example: "  coordd put greeting hello\n  coordd put --lease 1234abcd /workers/7 ready\n  coordd put config < config.json",
		Args:    arguments(1, 2, "a key and a value"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := f.options()
			if err != nil {
				return err
			}
			value := ""
			switch {
			case len(args) == 2 && f.ignoreValue:
				return fail(exitArguments, "--ignore-value excludes a value")
			case len(args) == 2:
				value = args[1]
			case !f.ignoreValue:
				if value, err = readAll(cmd.InOrStdin()); err != nil {
					return err
				}
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				resp, err := c.Put(ctx, args[0], value, opts...)
				if err != nil {
					return err
				}
				return p.show(putView(resp))
			})
		},
	}
	f.register(c.Flags())
	return c
}

// delFlags is the flags of del.
type delFlags struct{ prefix, fromKey, ranged, prevKV bool }

func (f *delFlags) register(s *pflag.FlagSet) {
	s.BoolVar(&f.prefix, "prefix", false, "all keys that begin with the key")
	s.BoolVar(&f.fromKey, "from-key", false, "all keys from the key on")
	s.BoolVar(&f.ranged, "range", false, "confirms that a range is meant")
	s.BoolVar(&f.prevKV, "prev-kv", false, "print the pairs that were deleted")
}

// options gives the key and the options that the flags mean.
func (f *delFlags) options(args []string) (string, []client.DeleteOption, error) {
	key, keys, err := span(args, f.prefix, f.fromKey)
	if err != nil {
		return "", nil, err
	}
	var opts []client.DeleteOption
	for _, o := range keys {
		opts = append(opts, o)
	}
	if f.prevKV {
		opts = append(opts, client.WithPrevKV())
	}
	return key, opts, nil
}

func newDel(s *settings) *cobra.Command {
	var f delFlags
	c := &cobra.Command{
		Use:     "del <key> [range_end]",
		Short:   "Delete a key, or several, and print how many there were",
		Example: "  coordd del greeting\n  coordd del --prefix /config/old/",
		Args:    arguments(0, 2, "a key and perhaps the end of a range"),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, opts, err := f.options(args)
			if err != nil {
				return err
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				resp, err := c.Delete(ctx, key, opts...)
				if err != nil {
					return err
				}
				return p.show(deleteView(resp))
			})
		},
	}
	f.register(c.Flags())
	return c
}

func newCompaction(s *settings) *cobra.Command {
	var physical bool
	c := &cobra.Command{
		Use:     "compaction <revision>",
		Short:   "Forget the history before a revision",
		Example: "  coordd compaction 12345\n  coordd compaction 12345 --physical",
		Args:    arguments(1, 1, "a revision"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rev, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return fail(exitArguments, "%q is no revision; the current one is in `coordd endpoint status -w json`", args[0])
			}
			var opts []client.CompactOption
			if physical {
				opts = append(opts, client.WithPhysical())
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				resp, err := c.Compact(ctx, rev, opts...)
				if err != nil {
					return err
				}
				return p.show(view{
					simple:  func(w *lines) { w.line("compacted revision %d", rev) },
					fields:  func(w *lines) { w.header(resp.Header) },
					json:    resp,
					message: resp,
				})
			})
		},
	}
	c.Flags().BoolVar(&physical, "physical", false, "wait until the member has removed the old data")
	return c
}
