package embed

import (
	"fmt"
	"io"
	"strings"
)

// WriteHelp lists all flags in groups, with defaults, variables and what is not there yet.
func WriteHelp(w io.Writer) error {
	var b strings.Builder
	group := ""
	for _, s := range settings(newServerConfig()) {
		if s.flag == "" {
			continue
		}
		if s.group != group {
			group = s.group
			fmt.Fprintf(&b, "\n%s:\n", group)
			if s.obsolete {
				fmt.Fprintf(&b, "  %s\n", strings.Join(obsoleteFlags(), " "))
			}
		}
		if !s.obsolete {
			writeFlag(&b, s)
		}
	}
	b.WriteString(`
Configuration file:
  --config-file ''
      YAML file with all settings; other flags and variables are then ignored. "coordd sample-config" prints one.

Other:
  --version
      Print the version and exit.
  --help
      Print this and exit.

Each flag --some-flag can be given as the environment variable ETCD_SOME_FLAG or COORDD_SOME_FLAG instead.
`)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeFlag(b *strings.Builder, s *setting) {
	fmt.Fprintf(b, "  --%s '%s'\n      %s", s.flag, s.value, s.help)
	if s.value.unit != "" {
		fmt.Fprintf(b, " In %s.", s.value.unit)
	}
	switch {
	case s.lack.pointless:
		fmt.Fprintf(b, " Has no effect: %s.", s.lack.why)
	case s.lack.why != "":
		fmt.Fprintf(b, " Not there yet: %s.", s.lack.why)
	}
	b.WriteString("\n")
}

func obsoleteFlags() []string {
	var names []string
	for _, s := range settings(newServerConfig()) {
		if s.obsolete {
			names = append(names, "--"+s.flag)
		}
	}
	return names
}

// WriteSample prints a configuration file with every key, its default and its meaning. All keys are
// commented out.
func WriteSample(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Configuration of coordd, for --config-file. Durations are whole nanoseconds, or text such as 1m30s.\n")
	group := ""
	var open []string // blocks the last key was in
	for _, s := range settings(newServerConfig()) {
		if s.key == "" {
			continue
		}
		if s.group != group {
			group, open = s.group, nil
			fmt.Fprintf(&b, "\n# --- %s\n", group)
		}
		path := strings.Split(s.key, ".")
		blocks := path[:len(path)-1]
		for i, name := range blocks {
			if i >= len(open) || open[i] != name {
				fmt.Fprintf(&b, "# %s%s:\n", strings.Repeat("  ", i), name)
				open = blocks[:i]
			}
		}
		open = blocks
		indent := strings.Repeat("  ", len(blocks))
		fmt.Fprintf(&b, "# %s# %s", indent, s.help)
		if s.value.unit != "" {
			fmt.Fprintf(&b, " In %s.", s.value.unit)
		}
		if s.lack.why != "" && !s.lack.pointless {
			fmt.Fprintf(&b, " Not there yet: %s.", s.lack.why)
		}
		fmt.Fprintf(&b, "\n# %s%s: %s\n", indent, path[len(path)-1], s.value.yaml())
	}
	_, err := io.WriteString(w, b.String())
	return err
}
