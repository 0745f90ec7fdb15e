package embed

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// envPrefixes are those of the environment variables that set flags.
var envPrefixes = []string{"ETCD_", "COORDD_"}

// envKnown are variables with such a prefix that are no flags.
var envKnown = []string{"ETCD_VERIFY", "ETCD_UNSUPPORTED_ARCH", "COORDD_VERIFY"}

const configFile = "config-file"

// UsageError is a command line that cannot be understood, as opposed to one that asks for something
// impossible.
type UsageError struct{ Err error }

// Error says what is wrong.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// Note is something to log once there is a logger.
type Note struct {
	Level  zapcore.Level
	Text   string
	Fields []zap.Field
}

// Log writes notes to a logger.
func Log(lg *zap.Logger, notes []Note) {
	for _, n := range notes {
		lg.Log(n.Level, n.Text, n.Fields...)
	}
}

// Loaded is what Load found.
type Loaded struct {
	Config *Config
	// Version: only the version is asked for, by --version.
	Version bool
	// Notes tell where the settings came from and what is odd about them.
	Notes []Note
}

// Load makes the configuration of a server from its arguments (without the program's name) and its
// environment (as os.Environ gives it), by etcd's rules: with --config-file, or the variable
// ETCD_CONFIG_FILE, the file alone counts; otherwise flags do, and for flags that are not given the
// variables ETCD_… and COORDD_…. A flag that is given both ways is an error. What is not set has the
// default of the command: unlike with [NewConfig], there are listeners.
//
// Errors name the flag, variable or key. A *UsageError is one of flags that cannot be parsed;
// flag.ErrHelp means that --help is among them.
func Load(args, environ []string) (*Loaded, error) {
	l := &loader{Loaded: Loaded{Config: newServerConfig()}, given: map[string]bool{}}
	l.all = settings(l.Config)
	if err := l.parse(args); err != nil {
		return nil, err
	}
	if l.Version {
		return &l.Loaded, nil
	}
	env := variables(environ)
	if err := l.environment(env); err != nil {
		return nil, err
	}
	if err := l.finish(); err != nil {
		return nil, err
	}
	return &l.Loaded, nil
}

type loader struct {
	Loaded
	all   []*setting
	file  string
	given map[string]bool // names of flags that were set, in whatever way
}

func (l *loader) note(level zapcore.Level, text string, fields ...zap.Field) {
	l.Notes = append(l.Notes, Note{level, text, fields})
}

// parse reads the command line.
func (l *loader) parse(args []string) error {
	fs := flag.NewFlagSet("coordd", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, s := range l.all {
		if s.flag != "" {
			fs.Var(s.value, s.flag, s.help)
		}
	}
	fs.StringVar(&l.file, configFile, "", "")
	fs.BoolVar(&l.Version, "version", false, "")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return &UsageError{err}
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%q is not a valid flag: flags begin with --, and a switch is turned off by --name=false", fs.Arg(0))
	}
	fs.Visit(func(f *flag.Flag) { l.given[f.Name] = true })
	return nil
}

// variable is an environment variable of ours.
type variable struct{ name, text string }

// variables are those with our prefixes that are not empty, by name.
func variables(environ []string) []variable {
	var vars []variable
	for _, e := range environ {
		name, text, _ := strings.Cut(e, "=")
		for _, p := range envPrefixes {
			if strings.HasPrefix(name, p) && text != "" {
				vars = append(vars, variable{name, text})
			}
		}
	}
	slices.SortFunc(vars, func(a, b variable) int { return strings.Compare(a.name, b.name) })
	return vars
}

// environment reads the file or, if there is none, the variables.
func (l *loader) environment(vars []variable) error {
	for _, v := range vars {
		if l.file == "" && (v.name == "ETCD_CONFIG_FILE" || v.name == "COORDD_CONFIG_FILE") {
			l.file = v.text
		}
	}
	if l.file != "" {
		return l.readFile(vars)
	}
	from := map[string]variable{}
	for _, v := range vars {
		if slices.Contains(envKnown, v.name) {
			continue
		}
		if err := l.variable(v, from); err != nil {
			return err
		}
	}
	for name := range from {
		l.given[name] = true
	}
	return nil
}

// variable sets the flag of an environment variable. from has, by flag, those that were used already.
func (l *loader) variable(v variable, from map[string]variable) error {
	s := l.named(v.name)
	if s == nil {
		l.note(zap.WarnLevel, "unrecognized environment variable", zap.String("environment-variable", v.name))
		return nil
	}
	if used, ok := from[s.flag]; ok && used.text != v.text {
		return fmt.Errorf("environment variables %s and %s are for one flag, and differ: unset one", used.name, v.name)
	} else if ok {
		return nil
	}
	if l.given[s.flag] {
		return fmt.Errorf("conflicting environment variable %s is shadowed by corresponding command-line flag --%s: unset the variable, or leave out the flag", v.name, s.flag)
	}
	if err := s.value.Set(v.text); err != nil {
		return fmt.Errorf("invalid value %q for environment variable %s: %w", v.text, v.name, err)
	}
	from[s.flag] = v
	text := v.text
	if strings.Contains(s.flag, "password") {
		text = "(hidden)"
	}
	l.note(zap.InfoLevel, "recognized and used environment variable", zap.String("variable-name", v.name), zap.String("variable-value", text))
	return nil
}

// named is the setting of an environment variable, nil if there is none.
func (l *loader) named(name string) *setting {
	for _, s := range l.all {
		for _, p := range envPrefixes {
			if s.environment(p) == name && s.flag != "" {
				return s
			}
		}
	}
	return nil
}

// finish applies the rules that depend on what was given, and validates.
func (l *loader) finish() error {
	c := l.Config
	if l.given["listen-client-urls"] && !l.given["advertise-client-urls"] {
		return errors.New("--advertise-client-urls is required when --listen-client-urls is set explicitly")
	}
	ways := 0
	for _, given := range []bool{l.given["initial-cluster"], c.DiscoverySRV != "", len(c.Discovery.Endpoints) > 0} {
		if given {
			ways++
		}
	}
	if ways > 1 {
		return errors.New(`multiple discovery or bootstrap flags are set. Choose one of "initial-cluster", "discovery-endpoints" or "discovery-srv"`)
	}
	if (c.Discovery.Token != "") != (len(c.Discovery.Endpoints) > 0) {
		return errors.New("both --discovery-token and --discovery-endpoints must be set")
	}
	if !l.given["initial-advertise-peer-urls"] && !l.given["initial-cluster"] && l.given["listen-peer-urls"] {
		c.AdvertisePeerURLs = reachable(c.ListenPeerURLs)
	}
	if c.Dir == "" {
		l.note(zap.WarnLevel, "'data-dir' was empty; using default", zap.String("data-dir", c.resolved().Dir))
	}
	return c.Validate()
}
