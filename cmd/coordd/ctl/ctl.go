package ctl

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coordd/coordd/client"
)

// settings is the flags that all commands have.
type settings struct {
	endpoints      []string
	format         string
	hex            bool
	dialTimeout    time.Duration
	commandTimeout time.Duration
	keepAlive      time.Duration
	keepAliveWait  time.Duration
	insecure       bool
	skipVerify     bool
	cert, key, ca  string
	user, password string
	token          string

	lookup func(name string) (string, bool) // of the environment
	extra  []client.Option                  // for tests
}

// Commands gives the sub-commands, to be added to a root command. Each call gives new ones.
func Commands() []*cobra.Command { return commands(&settings{lookup: os.LookupEnv}) }

// commands gives the sub-commands over settings.
func commands(s *settings) []*cobra.Command {
	list := []*cobra.Command{
		newGet(s), newPut(s), newDel(s), newTxn(s), newWatch(s), newCompaction(s),
		newLease(s), newMember(s), newEndpoint(s), newAlarm(s), newMoveLeader(s), newSnapshot(s),
		newLock(s), newElect(s), newMakeMirror(s),
	}
	for _, c := range list {
		s.register(c.PersistentFlags())
		prepare(c)
		c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return s.fromEnvironment(cmd.Flags()) }
	}
	return list
}

// prepare sets on a command and those below it what is the same for all.
func prepare(c *cobra.Command) {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.DisableFlagsInUseLine = true
	c.SetUsageTemplate(usage)
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &ExitError{exitArguments, err} })
	for _, sub := range c.Commands() {
		prepare(sub)
	}
}

// usage is cobra's template with the flags of the command before those of the connection.
const usage = `Usage:
  {{if .Runnable}}{{.UseLine}}{{else}}{{.CommandPath}} COMMAND{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .LocalNonPersistentFlags.HasAvailableFlags}}

Flags:
{{.LocalNonPersistentFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

Connection and output:
{{if .PersistentFlags.HasAvailableFlags}}{{.PersistentFlags.FlagUsages | trimTrailingWhitespaces}}{{else}}{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

Each of these can be set as ETCDCTL_<FLAG> or COORDD_<FLAG>, such as COORDD_ENDPOINTS; the flag wins.
`

// register adds the flags.
func (s *settings) register(f *pflag.FlagSet) {
	f.StringSliceVar(&s.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "members to talk to, separated by commas")
	f.StringVarP(&s.format, "write-out", "w", "simple", "output: simple, json, fields, table or protobuf")
	f.BoolVar(&s.hex, "hex", false, `print bytes as \xNN and ids in hex`)
	f.DurationVar(&s.dialTimeout, "dial-timeout", 2*time.Second, "time to connect to one member")
	f.DurationVar(&s.commandTimeout, "command-timeout", 5*time.Second, "time for the whole command, unless it runs until stopped")
	f.DurationVar(&s.keepAlive, "keepalive-time", client.DefaultKeepAliveTime, "silence before a connection is checked; at least 10s")
	f.DurationVar(&s.keepAliveWait, "keepalive-timeout", 6*time.Second, "time for the answer to that check")
	f.BoolVar(&s.insecure, "insecure-transport", true, "talk in the clear unless the endpoint or a TLS flag asks for TLS")
	f.BoolVar(&s.skipVerify, "insecure-skip-tls-verify", false, "do not check the server's certificate (testing only)")
	f.StringVar(&s.cert, "cert", "", "client certificate, a PEM file")
	f.StringVar(&s.key, "key", "", "key of the client certificate, a PEM file")
	f.StringVar(&s.ca, "cacert", "", "CA that signed the servers' certificates, a PEM file")
	f.StringVar(&s.user, "user", "", "name[:password] to log in with")
	f.StringVar(&s.password, "password", "", "password of --user")
	f.StringVar(&s.token, "auth-jwt-token", "", "token to show instead of logging in")
}

// fromEnvironment sets the flags that were not given from the environment.
func (s *settings) fromEnvironment(f *pflag.FlagSet) error {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(settings).register(own)
	var failed error
	own.VisitAll(func(flag *pflag.Flag) {
		given := f.Lookup(flag.Name)
		if given == nil || given.Changed || failed != nil {
			return
		}
		for _, prefix := range []string{"COORDD_", "ETCDCTL_"} {
			name := prefix + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
			value, ok := s.lookup(name)
			if !ok || value == "" {
				continue
			}
			if err := f.Set(flag.Name, value); err != nil {
				failed = fail(exitArguments, "environment variable %s: %w", name, err)
			}
			return
		}
	})
	if failed != nil {
		return failed
	}
	if !knownFormat(s.format) {
		return fail(exitFeature, "unknown output format %q; use simple, json, fields, table or protobuf", s.format)
	}
	return nil
}

// connect makes a client of the endpoints given, of those of the flags if there are none.
func (s *settings) connect(endpoints ...string) (*client.Client, error) {
	if len(endpoints) == 0 {
		endpoints = s.endpoints
	}
	opts := []client.Option{
		client.WithDialTimeout(s.dialTimeout),
		client.WithKeepAlive(s.keepAlive, s.keepAliveWait),
	}
	tls, err := s.tls()
	if err != nil {
		return nil, err
	}
	if tls != nil {
		opts = append(opts, client.WithTLS(tls))
	}
	if s.user != "" {
		name, password, found := strings.Cut(s.user, ":")
		if s.password != "" {
			password, found = s.password, true
		}
		if !found {
			return nil, fail(exitArguments, "no password for user %q: give --password, or --user %s:PASSWORD", name, name)
		}
		opts = append(opts, client.WithCredentials(name, password))
	}
	if s.token != "" {
		opts = append(opts, client.WithToken(s.token))
	}
	c, err := client.New(endpoints, append(opts, s.extra...)...)
	if err != nil {
		return nil, &ExitError{exitArguments, err}
	}
	return c, nil
}

// run does one thing with a client within the time for a command.
func (s *settings) run(cmd *cobra.Command, do func(ctx context.Context, c *client.Client, p *printer) error) error {
	return s.follow(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
		ctx, cancel := context.WithTimeout(ctx, s.commandTimeout)
		defer cancel()
		return do(ctx, c, p)
	})
}

// follow does one thing with a client for as long as it takes.
func (s *settings) follow(cmd *cobra.Command, do func(ctx context.Context, c *client.Client, p *printer) error) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // gives nothing but nil
	err = do(cmd.Context(), c, s.printer(cmd))
	if err != nil && cmd.Context().Err() != nil { // whatever its cause
		return &ExitError{Code: exitInterrupted}
	}
	return err
}

// printer gives the printer of a command.
func (s *settings) printer(cmd *cobra.Command) *printer {
	return &printer{out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr(), format: s.format, hex: s.hex}
}

// arguments checks the number of arguments; what says which there are.
func arguments(min, max int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < min || max >= 0 && len(args) > max {
			return fail(exitArguments, "%s takes %s; got %d arguments. Try `%s --help`", cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// group makes a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  arguments(0, 0, "one of the commands below it"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	c.AddCommand(subs...)
	return c
}

// readAll reads what is left of the input, without the newline a shell adds.
func readAll(in io.Reader) (string, error) {
	b, err := io.ReadAll(in)
	if err != nil {
		return "", fail(exitIO, "cannot read the standard input: %w", err)
	}
	return string(b), nil
}
