package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/cmd/coordd/ctl"
	"github.com/coordd/coordd/embed"
)

// exitCode is the error of a command that has said what there is to say.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// command runs a sub-command.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	root.InitDefaultHelpCmd() // Find would not know them yet
	root.InitDefaultCompletionCmd(args...)
	if cmd, _, err := root.Find(args); err != nil || cmd == root {
		return fail(stderr, fmt.Errorf("%q is not a valid flag, and not a command of coordd either; run coordd help for the commands, coordd --help for the server's flags", args[0]))
	}
	err := root.ExecuteContext(ctx)
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	return ctl.Report(stderr, err)
}

// newRoot is the tree of commands.
func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "coordd",
		Short:         "A coordination store that speaks etcd's v3 API",
		Long:          "coordd is a coordination store that speaks etcd's v3 API.\nWithout a command it runs one member of a cluster; coordd --help lists the flags for that.",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "client", Title: "Use a running cluster:"})
	for _, c := range []*cobra.Command{
		newCluster(stdout, stderr),
		{
			Use: "sample-config", Short: "Print a configuration file with all settings", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return embed.WriteSample(stdout) },
		},
	} {
		c.GroupID = "run"
		root.AddCommand(c)
	}
	for _, c := range ctl.Commands() {
		if c.Name() == "version" { // ours tells the server's too
			continue
		}
		c.GroupID = "client"
		root.AddCommand(c)
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the versions", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return status(printVersion(stdout, stderr, true)) },
	})
	return root
}

// status turns an exit code into an error.
func status(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode(code)
}
