package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// replicated are the folders whose code runs on every member and must come to the same result
// there, with folders below them that are not part of that.
var replicated = []struct {
	dir    string
	except []string
}{
	{"apply", nil},
	{"mvcc", []string{"mvcc/backend"}}, // the backend times its commits; what it holds does not depend on when
	{"member", nil},
	{"auth", nil},
	{"lease", nil},
}

// pureExceptions are files in replicated folders, as patterns of path.Match, that are not part of the
// replicated state.
var pureExceptions = map[string]string{
	"lease/expirer*.go": "the leader's private estimate of deadlines: it only proposes revokes, which are replicated",
	"auth/token*.go":    "tokens are made and checked by one member before proposing; entries carry the caller's name",
}

// impure names what depends on the machine or the moment, by package. With a list, only those
// names; without one, the whole package.
var impure = map[string][]string{
	"time":         {"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep"},
	"math/rand":    nil,
	"math/rand/v2": nil,
	"crypto/rand":  nil,
	"os/exec":      nil,
	"net/http":     nil,
}

// pureNet are the parts of package net that only take texts apart.
var pureNet = []string{"SplitHostPort", "JoinHostPort", "ParseIP", "ParseCIDR", "IP", "IPNet", "IPMask", "ParseError", "AddrError"}

// pureRule keeps clocks, random sources and the network out of the replicated state machine.
func pureRule(t *Tree, report func(Finding)) {
	for _, f := range t.files {
		if !t.product(f) || !isReplicated(f) {
			continue
		}
		f.uses(func(pkg, name string, pos token.Pos) {
			names, known := impure[pkg]
			bad := known && (names == nil || slices.Contains(names, name)) || pkg == "net" && !slices.Contains(pureNet, name)
			if bad {
				report(Finding{f.path, t.line(pos), "pure", fmt.Sprintf("%s.%s in the replicated state machine", pkg, name),
					"replicas must compute the same from the same entries; clocks, random numbers and networks differ",
					"have the proposer put the value into the request; or, if the file is not part of the replicated state, name it in pureExceptions with the reason"})
			}
		})
	}
}

func isReplicated(f *file) bool {
	for pattern := range pureExceptions {
		if ok, err := path.Match(pattern, f.path); ok && err == nil {
			return false
		}
	}
	for _, r := range replicated {
		if within(f.dir, r.dir) {
			return !slices.ContainsFunc(r.except, func(top string) bool { return within(f.dir, top) })
		}
	}
	return false
}

// globalUse names what reaches beyond a library, by package: names that are wrong, or, with but,
// all names except these.
type globalUse struct {
	names []string
	but   []string
	why   string
	do    string
}

const flagPackages = "FlagSet NewFlagSet Flag Value Getter ErrHelp ErrorHandling ContinueOnError ExitOnError PanicOnError NormalizedName SliceValue ParseErrorsWhitelist ParseErrorsAllowlist"

var globalUses = map[string]globalUse{
	"github.com/prometheus/client_golang/prometheus":          {names: []string{"DefaultRegisterer", "DefaultGatherer", "MustRegister", "Register", "Unregister"}, why: "two servers in one process would collide in the global registry", do: "register with the prometheus.Registerer that the constructor is given"},
	"github.com/prometheus/client_golang/prometheus/promauto": {but: []string{"With", "Factory"}, why: "two servers in one process would collide in the global registry", do: "use promauto.With and the registerer that the constructor is given"},
	"expvar":                 {names: []string{"Publish", "NewInt", "NewFloat", "NewMap", "NewString"}, why: "two servers in one process would collide in the global registry", do: "serve the values from a handler of your own"},
	"net/http":               {names: []string{"Handle", "HandleFunc", "DefaultServeMux"}, why: "two servers in one process would collide in the global mux", do: "use a ServeMux of your own"},
	"go.uber.org/zap":        {names: []string{"L", "S", "ReplaceGlobals", "RedirectStdLog"}, why: "a library logs where its caller wants", do: "use the logger that the constructor is given"},
	"log":                    {but: []string{"New", "Logger", "LstdFlags", "Lshortfile", "Lmicroseconds", "LUTC", "Lmsgprefix", "Ldate", "Ltime", "Llongfile"}, why: "a library logs where its caller wants, and never ends the process", do: "use the logger that the constructor is given, or return an error"},
	"log/slog":               {names: []string{"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext", "Log", "LogAttrs", "With", "SetLogLoggerLevel"}, why: "a library logs where its caller wants", do: "use the logger that the constructor is given"},
	"flag":                   {but: strings.Fields(flagPackages), why: "the flags of a process belong to its command", do: "take options as a struct, or a FlagSet as an argument"},
	"github.com/spf13/pflag": {but: strings.Fields(flagPackages), why: "the flags of a process belong to its command", do: "take options as a struct, or a FlagSet as an argument"},
	"os":                     {names: []string{"Exit"}, why: "only a command may end the process", do: "return an error"},
	"fmt":                    {names: []string{"Print", "Printf", "Println"}, why: "standard output belongs to the command", do: "write to an io.Writer that the caller gives, or log"},
}

// libraryRule keeps libraries, everything below the commands, away from what the process has only
// one of.
func libraryRule(t *Tree, report func(Finding)) {
	for _, f := range t.files {
		if l, ok := layerOf(f.dir); !t.product(f) || f.generated || !ok || l.n >= toolsLayer {
			continue
		}
		f.uses(func(pkg, name string, pos token.Pos) {
			g, ok := globalUses[pkg]
			if ok && (slices.Contains(g.names, name) || g.but != nil && !slices.Contains(g.but, name)) {
				report(Finding{f.path, t.line(pos), "library", fmt.Sprintf("%s.%s in a library", pkg, name), g.why, g.do})
			}
		})
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if id, ok := call.Fun.(*ast.Ident); ok && id.Obj == nil && (id.Name == "print" || id.Name == "println") {
				report(Finding{f.path, t.line(id.Pos()), "library", "the built-in " + id.Name + " in a library", "standard error belongs to the command", "log, or return an error"})
			}
			return true
		})
	}
}
