package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"

	"go.uber.org/zap"

	"github.com/coordd/coordd/embed"
)

// serve runs one member until the context ends.
func serve(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	loaded, err := embed.Load(args, environ)
	var usage *embed.UsageError
	switch {
	case errors.Is(err, flag.ErrHelp):
		return help(stdout, stderr)
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "coordd: %s; run coordd --help for the flags\n", oneLine(err)) //nolint:errcheck // there is nowhere left to say so
		return 2
	case err != nil:
		return fail(stderr, err)
	case loaded.Version:
		return printVersion(stdout, stderr, false)
	}
	lg, closeLog, err := embed.NewLogger(loaded.Config.Log, stdout, stderr)
	if err != nil {
		return fail(stderr, err)
	}
	loaded.Config.Logger = lg
	lg.Info("Running: ", zap.Strings("args", append([]string{"coordd"}, args...)))
	embed.Log(lg, loaded.Notes)
	tune := tuneGC(environ)
	code := member(ctx, loaded.Config, stderr)
	tune.stop()
	if err := closeLog(); err != nil && code == 0 {
		return fail(stderr, fmt.Errorf("closing the log: %w", err))
	}
	return code
}

// member runs the member that cfg describes.
func member(ctx context.Context, cfg *embed.Config, stderr io.Writer) int {
	node, err := embed.Start(ctx, cfg)
	if err != nil {
		return failLogged(cfg, stderr, err)
	}
	debug.FreeOSMemory() // reading the log and building the index leave more behind than they keep
	select {
	case <-node.Done():
		return failLogged(cfg, stderr, fmt.Errorf("member %s has stopped: %w", cfg.Name, reason(node.Err())))
	case <-ctx.Done():
	}
	cfg.Logger.Info("received signal; shutting down", zap.NamedError("cause", context.Cause(ctx)))
	if err := node.Close(); err != nil {
		return failLogged(cfg, stderr, err)
	}
	return endedBySignal
}

// reason is why a member ended by itself.
func reason(err error) error {
	if err == nil {
		return errors.New("it was removed from the cluster; to add it again, add it as a new member with an empty data directory")
	}
	return err
}

// failLogged is fail, and logs the error too where the log goes elsewhere.
func failLogged(cfg *embed.Config, stderr io.Writer, err error) int {
	if !slices.Contains(cfg.Log.Outputs, "default") && !slices.Contains(cfg.Log.Outputs, "stderr") {
		cfg.Logger.Error("this member cannot run", zap.Error(err))
	}
	return fail(stderr, err)
}

// help prints the server's flags.
func help(stdout, stderr io.Writer) int {
	_, err := io.WriteString(stdout, `Usage:
  coordd [flags]        run one member of a cluster
  coordd cluster        run three members on loopback, to try things out
  coordd help           list the other commands: get, put, watch, …
`)
	if err := errors.Join(err, embed.WriteHelp(stdout)); err != nil {
		return fail(stderr, err)
	}
	return 0
}

// printVersion prints what tools parse: four lines, the first with the release of etcd whose API is
// served. Our own version stands in the second, or with own in a line of its own before them.
func printVersion(stdout, stderr io.Writer, own bool) int {
	sha := "Not provided (built outside of its repository)"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 7 {
				sha = s.Value[:7]
			}
		}
	}
	if own {
		fmt.Fprintf(stdout, "coordd Version: %s\n", embed.Version) //nolint:errcheck // the last write tells
	} else {
		sha += " (coordd Version: " + embed.Version + ")"
	}
	_, err := fmt.Fprintf(stdout, "etcd Version: %s\nGit SHA: %s\nGo Version: %s\nGo OS/Arch: %s/%s\n",
		embed.APIVersion, sha, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return fail(stderr, err)
	}
	return 0
}
