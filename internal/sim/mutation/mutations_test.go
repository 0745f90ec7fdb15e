package mutation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the root of the module.
const root = "../../.."

// TestListFits holds the list against the source: each piece of text is there, once, and nothing is there twice.
func TestListFits(t *testing.T) {
	names := map[string]bool{}
	for _, m := range Mutations() {
		if names[m.Name] {
			t.Errorf("two mutations are called %s", m.Name)
		}
		names[m.Name] = true
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		if n := strings.Count(string(data), m.Old); n != 1 || m.Old == m.New {
			t.Errorf("%s: the old text is %d times in %s, must be there once and differ from the new; follow the source", m.Name, n, m.File)
		}
	}
	if len(names) < 15 {
		t.Errorf("only %d mutations", len(names))
	}
}
