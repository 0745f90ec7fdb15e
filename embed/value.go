package embed

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind says how a value is written in the file.
type kind int

const (
	kindText kind = iota
	kindBool
	kindNumber
	kindDuration // whole nanoseconds, or text such as 1m30s
	kindList     // a list of texts, or one text with commas
)

// value ties one field of a Config to its text, which flags, environment and help use. It implements
// flag.Value.
type value struct {
	kind kind
	unit string // of the text, for help
	set  func(text string) error
	get  func() string
}

// String is the field's present value.
func (v *value) String() string {
	if v.get == nil { // flag makes zero values of its own
		return ""
	}
	return v.get()
}

// Set parses text into the field.
func (v *value) Set(text string) error { return v.set(text) }

// IsBoolFlag tells package flag that the value may be left out.
func (v *value) IsBoolFlag() bool { return v.kind == kindBool }

// setFile sets the field from the configuration file.
func (v *value) setFile(data any) error {
	switch data := data.(type) {
	case string:
		if v.kind == kindBool || v.kind == kindNumber {
			return fmt.Errorf("it must be a %s, not the text %q", map[kind]string{kindBool: "true or false", kindNumber: "number"}[v.kind], data)
		}
		return v.set(data)
	case bool:
		if v.kind == kindBool {
			return v.set(strconv.FormatBool(data))
		}
	case json.Number:
		switch v.kind {
		case kindNumber, kindText:
			return v.set(data.String())
		case kindDuration:
			return v.set(data.String() + "ns")
		}
	case []any:
		if v.kind == kindList {
			return v.setList(data)
		}
	case nil:
		return nil // the key without a value: the default
	}
	return fmt.Errorf("it cannot be %v", data)
}

func (v *value) setList(data []any) error {
	texts := make([]string, 0, len(data))
	for _, d := range data {
		s, ok := d.(string)
		if !ok {
			return fmt.Errorf("%v in the list is not a text", d)
		}
		texts = append(texts, s)
	}
	return v.set(strings.Join(texts, ","))
}

func text(p *string) *value {
	return &value{set: func(s string) error { *p = s; return nil }, get: func() string { return *p }}
}

// choice is a text that must be one of a few.
func choice(p *string, of ...string) *value {
	return &value{get: func() string { return *p }, set: func(s string) error {
		if !slices.Contains(of, s) {
			return fmt.Errorf("it must be one of %s", strings.Join(of, ", "))
		}
		*p = s
		return nil
	}}
}

func boolean(p *bool) *value {
	return &value{kind: kindBool, get: func() string { return strconv.FormatBool(*p) }, set: func(s string) (err error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("it must be true or false")
		}
		*p = b
		return nil
	}}
}

func unsigned[T uint | uint32 | uint64](p *T) *value {
	return &value{kind: kindNumber, get: func() string { return strconv.FormatUint(uint64(*p), 10) }, set: func(s string) error {
		n, err := strconv.ParseUint(s, 0, 64)
		if err != nil || uint64(T(n)) != n {
			return fmt.Errorf("it must be a whole number from 0 to %d", ^T(0))
		}
		*p = T(n)
		return nil
	}}
}

func signed[T int | int64](p *T) *value {
	return &value{kind: kindNumber, get: func() string { return strconv.FormatInt(int64(*p), 10) }, set: func(s string) error {
		n, err := strconv.ParseInt(s, 0, 64)
		if err != nil {
			return errors.New("it must be a whole number")
		}
		*p = T(n)
		return nil
	}}
}

func duration(p *time.Duration) *value {
	return &value{kind: kindDuration, get: func() string { return p.String() }, set: func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return errors.New("it must be a duration such as 100ms, 5s or 1h30m")
		}
		*p = d
		return nil
	}}
}

// millis is a duration that is written as a number of milliseconds.
func millis(p *time.Duration) *value {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return &value{kind: kindNumber, unit: "ms", get: func() string { return strconv.FormatInt(p.Milliseconds(), 10) }, set: func(s string) error {
		n, err := strconv.ParseInt(s, 0, 64)
		if err != nil || n < 0 || n > most {
			return errors.New("it must be a whole number of milliseconds")
		}
		*p = time.Duration(n) * time.Millisecond
		return nil
	}}
}

// list is texts with commas between them.
func list(p *[]string) *value {
	return &value{kind: kindList, get: func() string { return strings.Join(*p, ",") }, set: func(s string) error {
		*p = split(s)
		return nil
	}}
}

// urls is a list of URLs.
func urls(p *[]string) *value {
	v := list(p)
	v.set = func(s string) error {
		all := split(s)
		for _, u := range all {
			if err := checkURL(u); err != nil {
				return err
			}
		}
		*p = all
		return nil
	}
	return v
}

// ignored is a value that nothing reads, for flags that etcd still takes too.
func ignored(boolean bool) *value {
	v := &value{set: func(string) error { return nil }, get: func() string { return "" }}
	if boolean {
		v.kind = kindBool
	}
	return v
}

func split(s string) []string {
	var all []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// checkURL reports what keeps a URL from being the address of a listener or member. Whether its host
// can be listened on is seen later.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("%q is not a URL: write it as http://host:port", raw)
	}
	switch u.Scheme {
	case "http", "https":
		if u.Path != "" && u.Path != "/" {
			return fmt.Errorf("URL must not contain a path: %s", raw)
		}
		if u.Port() == "" {
			return fmt.Errorf("URL address does not have the form \"host:port\": %s", raw)
		}
	case "unix", "unixs":
		if u.Host+u.Path == "" {
			return fmt.Errorf("URL %s names no socket", raw)
		}
	default:
		return fmt.Errorf("URL scheme must be http, https, unix, or unixs: %s", raw)
	}
	return nil
}

// yaml is the present value as it stands in the file.
func (v *value) yaml() string {
	switch s := v.String(); v.kind {
	case kindBool, kindNumber:
		return s
	case kindDuration:
		return s
	default:
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
}
