package embed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"
	"sigs.k8s.io/yaml"
)

// readFile takes all settings from the file, and says which flags and variables are ignored for it.
func (l *loader) readFile(vars []variable) error {
	for name := range l.given {
		if name != configFile {
			l.note(zap.WarnLevel, "ignored command-line flag in favor of config file", zap.String("flag", "--"+name), zap.String("config-file", l.file))
		}
	}
	for _, v := range vars {
		if v.name != "ETCD_CONFIG_FILE" && v.name != "COORDD_CONFIG_FILE" && !slices.Contains(envKnown, v.name) {
			l.note(zap.WarnLevel, "ignored environment variable in favor of config file", zap.String("environment-variable", v.name), zap.String("config-file", l.file))
		}
	}
	l.Config, l.given = newServerConfig(), map[string]bool{}
	l.all = settings(l.Config)
	data, err := os.ReadFile(l.file)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	l.note(zap.InfoLevel, "loaded configuration from a file, other configuration command line flags and environment variables will be ignored if provided", zap.String("path", l.file))
	return l.decode(data)
}

// decode reads YAML or JSON.
func (l *loader) decode(data []byte) error {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", l.file, err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // quotas and nanoseconds do not fit a float
	var tree map[string]any
	if err := d.Decode(&tree); err != nil {
		return fmt.Errorf("configuration file %s is not a list of key: value lines: %w", l.file, err)
	}
	return l.walk("", tree)
}

// walk sets what is in one block of the file; prefix is the block's key with a dot.
func (l *loader) walk(prefix string, block map[string]any) error {
	keys := make([]string, 0, len(block))
	for k := range block {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		key := prefix + k
		if inner, ok := block[k].(map[string]any); ok && l.isBlock(key+".") {
			if err := l.walk(key+".", inner); err != nil {
				return err
			}
			continue
		}
		i := slices.IndexFunc(l.all, func(s *setting) bool { return s.key == key })
		switch {
		case i >= 0:
			if err := l.all[i].value.setFile(block[k]); err != nil {
				return fmt.Errorf("configuration file %s: %s: %w", l.file, key, err)
			}
			l.given[l.all[i].flag] = true
		case strings.Contains(prefix, "-transport-security."):
			return fmt.Errorf("configuration file %s: %s is unknown, and ignoring it would not be safe: correct or remove it", l.file, key)
		default:
			l.note(zap.WarnLevel, "ignored unknown key in config file", zap.String("key", key), zap.String("config-file", l.file))
		}
	}
	return nil
}

// isBlock reports whether settings have keys that begin so.
func (l *loader) isBlock(prefix string) bool {
	return slices.ContainsFunc(l.all, func(s *setting) bool { return strings.HasPrefix(s.key, prefix) })
}
