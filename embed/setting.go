package embed

import (
	"fmt"
	"strings"
)

// setting is one line of the table that ties flags, environment, file and help to the fields of a
// Config.
type setting struct {
	group string
	flag  string // without dashes; "" = only in the file, as with etcd
	key   string // in the file, with dots for nesting; "" = only a flag, as with etcd
	value *value
	help  string // one sentence
	lack  lack
	// replaces marks flags that etcd still takes and ignores, so they are no fields.
	obsolete bool
}

// lack says what comes of a setting whose feature is not there.
type lack struct {
	// refuse: to go on without the feature would be unsafe, so a node that is told to use it does not start.
	refuse bool
	// why completes "--flag is not there yet: …"; empty = nothing lacks.
	why string
	// pointless: the feature will not come either, because nothing here needs the setting.
	pointless bool
}

func refused(why string) lack   { return lack{refuse: true, why: why} }
func warned(why string) lack    { return lack{why: why} }
func pointless(why string) lack { return lack{why: why, pointless: true} }

// name is what users know the setting by.
func (s *setting) name() string {
	if s.flag == "" {
		return s.key
	}
	return "--" + s.flag
}

// environment is the setting's variable with either prefix, "" for those without a flag.
func (s *setting) environment(prefix string) string {
	if s.flag == "" {
		return ""
	}
	return prefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(s.flag))
}

// message is what the user is told when the setting is used although its feature lacks.
func (s *setting) message() string {
	switch {
	case s.lack.pointless:
		return fmt.Sprintf("%s has no effect: %s", s.name(), s.lack.why)
	case s.lack.refuse:
		return fmt.Sprintf("%s=%s is not there yet: %s", s.name(), s.value, s.lack.why)
	default:
		return fmt.Sprintf("%s=%s is not there yet and is ignored: %s", s.name(), s.value, s.lack.why)
	}
}

// table collects settings, group by group.
type table struct {
	group string
	all   []*setting
}

// add makes a setting whose key in the file is called like its flag.
func (t *table) add(flag string, v *value, help string) *setting {
	return t.nested(flag, flag, v, help)
}

// nested makes a setting with a key of its own.
func (t *table) nested(flag, key string, v *value, help string) *setting {
	s := &setting{group: t.group, flag: flag, key: key, value: v, help: help}
	t.all = append(t.all, s)
	return s
}

// lacks says that the feature behind the setting just made is not there.
func (s *setting) lacks(l lack) { s.lack = l }

// settings is the table, bound to the fields of c.
func settings(c *Config) []*setting {
	t := &table{}
	for _, g := range []struct {
		title string
		fill  func(*table, *Config)
	}{
		{"Member", memberSettings},
		{"Listeners", listenSettings},
		{"Storage", storageSettings},
		{"Cluster", clusterSettings},
		{"Discovery", discoverySettings},
		{"Security", securitySettings},
		{"Auth", authSettings},
		{"Logging", logSettings},
		{"Profiling, metrics and tracing", monitorSettings},
		{"Maintenance", maintenanceSettings},
		{"Unsafe", unsafeSettings},
		{"Accepted and ignored", obsoleteSettings},
	} {
		t.group = g.title
		g.fill(t, c)
	}
	return t.all
}

// lacking lists the settings of c that differ from their defaults though their feature is not there.
func (c *Config) lacking() []*setting {
	defaults := settings(newServerConfig())
	var list []*setting
	for i, s := range settings(c) {
		if s.lack.why != "" && s.value.String() != defaults[i].value.String() {
			list = append(list, s)
		}
	}
	return list
}
