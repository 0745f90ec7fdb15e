package api_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// additions are the fields that are ours, in messages that are not: numbered out of the way of
// those of etcd.
var additions = []string{
	"coordd.lock.LockRequest 100 try bool single",
	"coordd.lock.LockRequest 101 shared bool single",
	"coordd.lock.LockRequest 102 limit int64 single",
	"coordd.lock.LockRequest 103 lock_delay_ms int64 single",
	"coordd.lock.LockRequest 104 ttl int64 single",
	"coordd.lock.LockResponse 100 lease int64 single",
	"coordd.lock.LockResponse 101 fencing_token int64 single",
	"coordd.lock.LockResponse 102 remaining_ttl_ms int64 single",
	"coordd.lock.LockResponse 103 acquired bool single",
	"coordd.lock.UnlockRequest 100 fencing_token int64 single",
	"coordd.lock.UnlockRequest 101 lease int64 single",
	"coordd.election.CampaignRequest 100 ttl int64 single",
	"coordd.election.CampaignRequest 101 try bool single",
	"coordd.election.CampaignResponse 100 remaining_ttl_ms int64 single",
	"coordd.request.RequestHeader 20000 lease_term uint64 single",
}

// readLines gives the lines of a file that are neither empty nor comments.
func readLines(t testing.TB, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// describeMessage gives a message in the form of testdata/messages.txt.
func describeMessage(md protoreflect.MessageDescriptor) []string {
	if md.Fields().Len() == 0 {
		return []string{fmt.Sprintf("%s -", md.FullName())}
	}
	var lines []string
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		typ := fd.Kind().String()
		switch {
		case fd.Message() != nil:
			typ = string(fd.Message().FullName())
		case fd.Enum() != nil:
			typ = string(fd.Enum().FullName())
		}
		label := "single"
		switch {
		case fd.IsList():
			label = "repeated"
		case fd.ContainingOneof() != nil:
			label = "oneof:" + string(fd.ContainingOneof().Name())
		}
		lines = append(lines, fmt.Sprintf("%s %d %s %s %s", md.FullName(), fd.Number(), fd.Name(), typ, label))
	}
	return lines
}

// describeEnum gives an enum in the form of testdata/messages.txt.
func describeEnum(ed protoreflect.EnumDescriptor) string {
	line := "enum " + string(ed.FullName())
	for i := range ed.Values().Len() {
		v := ed.Values().Get(i)
		line += fmt.Sprintf(" %s=%d", v.Name(), v.Number())
	}
	return line
}

// TestFields compares every message and enum of the v3 API with the table of its fields: nothing is
// missing, other, or too much.
func TestFields(t *testing.T) {
	want := append(readLines(t, "testdata/messages.txt"), additions...)
	ours := map[string]bool{"coordd.native": true, "coordd.peer": true}
	var got []string
	for _, mt := range allMessages() {
		md := mt.Descriptor()
		if ours[string(md.ParentFile().Package())] {
			continue
		}
		got = append(got, describeMessage(md)...)
	}
	protoregistry.GlobalTypes.RangeEnums(func(et protoreflect.EnumType) bool {
		ed := et.Descriptor()
		if pkg := string(ed.ParentFile().Package()); strings.HasPrefix(pkg, "coordd.") && !ours[pkg] {
			got = append(got, describeEnum(ed))
		}
		return true
	})
	slices.Sort(want)
	slices.Sort(got)
	for _, line := range got {
		if _, ok := slices.BinarySearch(want, line); !ok {
			t.Errorf("not in the table: %s", line)
		}
	}
	for _, line := range want {
		if _, ok := slices.BinarySearch(got, line); !ok {
			t.Errorf("only in the table: %s", line)
		}
	}
	if len(got) < 300 {
		t.Errorf("only %d fields were compared", len(got))
	}
}

// TestRegistryNames makes sure that the API can be linked beside etcd's own modules: all files and
// names it registers are ours.
func TestRegistryNames(t *testing.T) {
	files := 0
	protoregistry.GlobalFiles.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		pkg := string(fd.Package())
		if strings.HasPrefix(fd.Path(), "google/") || strings.HasPrefix(pkg, "google.") || strings.HasPrefix(pkg, "grpc.") {
			return true
		}
		files++
		if !strings.HasPrefix(fd.Path(), "coordd/") || !strings.HasPrefix(pkg, "coordd.") {
			t.Errorf("file %q of package %q is registered under a foreign name", fd.Path(), pkg)
		}
		return true
	})
	if files < 15 {
		t.Errorf("only %d files of ours are registered", files)
	}
}
