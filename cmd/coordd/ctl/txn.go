package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coordd/coordd/client"
)

func newTxn(s *settings) *cobra.Command {
	var interactive bool
	c := &cobra.Command{
		Use:   "txn",
		Short: "Do several things at once, if conditions hold",
		Long: `Do several things at one revision, depending on conditions. Read from the standard input, in three parts, each
ended by an empty line (the last one also by the end of the input):

  conditions, all of which must hold      mod("key") > "0"
  what to do if they hold                 put key value
  what to do if one does not              get key

A condition compares one of ver (version), c (create), m or mod (modify), val (value) or lease of a quoted key by =, !=, > or <
with a quoted operand; leases are in hex. What to do are lines of get, put and del with their flags; put words with spaces in quotes.`,
		Example: "  printf 'c(\"lock\") = \"0\"\\n\\nput lock me\\n\\nget lock\\n\\n' | coordd txn",
		Args:    arguments(0, 0, "no arguments but the standard input"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := &script{in: bufio.NewReader(cmd.InOrStdin())}
			if interactive {
				in.prompt = cmd.OutOrStdout()
			}
			conditions, then, otherwise, err := in.read()
			if err != nil {
				return err
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				resp, err := c.Txn(ctx).If(conditions...).Then(then...).Else(otherwise...).Commit()
				if err != nil {
					return err
				}
				return p.show(txnView(resp))
			})
		},
	}
	c.Flags().BoolVarP(&interactive, "interactive", "i", false, "ask for each part")
	return c
}

// script reads a transaction line by line.
type script struct {
	in     *bufio.Reader
	prompt io.Writer // nil for none
	at     int       // line
	ended  bool
}

// read gives the three parts.
func (s *script) read() (conditions []client.Cmp, then, otherwise []client.Op, err error) {
	err = s.part("compares:", func(line string) error {
		c, err := parseCompare(line)
		conditions = append(conditions, c)
		return err
	})
	if err == nil {
		err = s.part("success requests (get, put, del):", func(line string) error {
			op, err := parseOp(line)
			then = append(then, op)
			return err
		})
	}
	if err == nil {
		err = s.part("failure requests (get, put, del):", func(line string) error {
			op, err := parseOp(line)
			otherwise = append(otherwise, op)
			return err
		})
	}
	return conditions, then, otherwise, err
}

// part reads lines up to an empty one.
func (s *script) part(title string, each func(line string) error) error {
	if s.prompt != nil {
		fmt.Fprintln(s.prompt, title) //nolint:errcheck // a prompt nobody sees
	}
	for !s.ended {
		line, err := s.in.ReadString('\n')
		if err != nil && err != io.EOF {
			return fail(exitIO, "cannot read the standard input: %w", err)
		}
		s.ended = err == io.EOF
		s.at++
		line = strings.TrimSpace(line)
		if line == "" {
			return nil
		}
		if err := each(line); err != nil {
			return fail(exitInput, "line %d, %s: %w", s.at, line, err)
		}
	}
	return nil
}

// parseCompare reads a condition such as mod("key") = "1".
func parseCompare(line string) (client.Cmp, error) {
	target, rest, ok := strings.Cut(line, "(")
	if !ok {
		return client.Cmp{}, errors.New(`not of the form target("key") operator "operand"`)
	}
	key, rest, err := operand(rest, ")")
	if err != nil {
		return client.Cmp{}, fmt.Errorf("key: %w", err)
	}
	rest, ok = strings.CutPrefix(strings.TrimSpace(rest), ")")
	if !ok {
		return client.Cmp{}, errors.New("no ) after the key")
	}
	rest = strings.TrimSpace(rest)
	op := ""
	for _, o := range []string{"!=", "=", ">", "<"} {
		if after, ok := strings.CutPrefix(rest, o); ok {
			op, rest = o, strings.TrimSpace(after)
			break
		}
	}
	if op == "" {
		return client.Cmp{}, errors.New("no operator; use =, !=, > or <")
	}
	value, rest, err := operand(rest, "")
	if err != nil {
		return client.Cmp{}, fmt.Errorf("operand: %w", err)
	}
	if strings.TrimSpace(rest) != "" {
		return client.Cmp{}, fmt.Errorf("nothing must follow the operand, got %q", rest)
	}
	return compare(strings.TrimSpace(target), key, op, value)
}

// operand reads a quoted string, or a bare one up to a space or stop.
func operand(s, stop string) (value, rest string, err error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, `"`) {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", errors.New("the quotes do not match")
		}
		value, err = strconv.Unquote(quoted)
		return value, s[len(quoted):], err
	}
	end := strings.IndexAny(s, " \t"+stop)
	if end < 0 {
		end = len(s)
	}
	if end == 0 {
		return "", "", errors.New("it is missing")
	}
	return s[:end], s[end:], nil
}

// comparison is what numbers and values have in common.
type comparison[T any] interface {
	Equal(T) client.Cmp
	NotEqual(T) client.Cmp
	Greater(T) client.Cmp
	Less(T) client.Cmp
}

// compare puts a condition together.
func compare(target, key, op, value string) (client.Cmp, error) {
	number, base := client.Number{}, 10
	switch target {
	case "ver", "version":
		number = client.Version(key)
	case "c", "create":
		number = client.CreateRevision(key)
	case "m", "mod":
		number = client.ModRevision(key)
	case "lease":
		number, base = client.LeaseOf(key), 16
	case "val", "value":
		return by(client.Value(key), op, value), nil
	default:
		return client.Cmp{}, fmt.Errorf("unknown target %q; use ver, create, mod, val or lease", target)
	}
	n, err := strconv.ParseInt(value, base, 64)
	if err != nil {
		return client.Cmp{}, fmt.Errorf("%q is no number", value)
	}
	return by(number, op, n), nil
}

func by[T any](c comparison[T], op string, operand T) client.Cmp {
	switch op {
	case "=":
		return c.Equal(operand)
	case "!=":
		return c.NotEqual(operand)
	case ">":
		return c.Greater(operand)
	default:
		return c.Less(operand)
	}
}

// parseOp reads a line of get, put or del.
func parseOp(line string) (client.Op, error) {
	words, err := splitWords(line)
	if err != nil {
		return client.Op{}, err
	}
	flags := pflag.NewFlagSet(words[0], pflag.ContinueOnError)
	flags.Usage = func() {}
	var get getFlags
	var put putFlags
	var del delFlags
	switch words[0] {
	case "get":
		get.register(flags)
	case "put":
		put.register(flags)
	case "del":
		del.register(flags)
	default:
		return client.Op{}, fmt.Errorf("unknown operation %q; use get, put or del", words[0])
	}
	if err := flags.Parse(words[1:]); err != nil {
		return client.Op{}, err
	}
	switch args := flags.Args(); {
	case words[0] == "put":
		return putOp(&put, args)
	case len(args) > 2:
		return client.Op{}, fmt.Errorf("%s takes a key and perhaps the end of a range", words[0])
	case words[0] == "get":
		key, opts, err := get.options(args)
		return client.OpGet(key, opts...), err
	default:
		key, opts, err := del.options(args)
		return client.OpDelete(key, opts...), err
	}
}

// putOp gives the operation of a put line.
func putOp(f *putFlags, args []string) (client.Op, error) {
	opts, err := f.options()
	switch {
	case err != nil:
		return client.Op{}, err
	case len(args) == 1 && f.ignoreValue:
		return client.OpPut(args[0], "", opts...), nil
	case len(args) != 2 || f.ignoreValue:
		return client.Op{}, errors.New("put takes a key and a value, or a key and --ignore-value")
	}
	return client.OpPut(args[0], args[1], opts...), nil
}

// splitWords cuts a line at spaces, but not inside quotes. In double quotes the escapes of Go count, in single ones nothing does.
func splitWords(line string) (words []string, err error) {
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		switch rest[0] {
		case '"':
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, errors.New("the quotes do not match")
			}
			word, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, err
			}
			words, rest = append(words, word), rest[len(quoted):]
		case '\'':
			word, after, ok := strings.Cut(rest[1:], "'")
			if !ok {
				return nil, errors.New("the quotes do not match")
			}
			words, rest = append(words, word), after
		default:
			end := strings.IndexAny(rest, " \t")
			if end < 0 {
				end = len(rest)
			}
			words, rest = append(words, rest[:end]), rest[end:]
		}
	}
	return words, nil
}
