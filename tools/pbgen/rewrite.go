package main

import (
	"fmt"
	"go/format"
	"regexp"
	"strings"
)

// wireNames are the names services go by on the wire, by the names they have in the .proto files.
// The .proto files use a package of their own, so that the generated descriptors do not clash with
// those of other modules for the same API in one program; but a method is called by the full name
// of its service, and there clients insist on theirs.
var wireNames = map[string]string{
	"coordd.services.KV":          "etcdserverpb.KV",
	"coordd.services.Watch":       "etcdserverpb.Watch",
	"coordd.services.Lease":       "etcdserverpb.Lease",
	"coordd.services.Cluster":     "etcdserverpb.Cluster",
	"coordd.services.Maintenance": "etcdserverpb.Maintenance",
	"coordd.services.Auth":        "etcdserverpb.Auth",
	"coordd.services.Lock":        "v3lockpb.Lock",
	"coordd.services.Election":    "v3electionpb.Election",
	"coordd.services.Locks":       "coordd.Locks",
	"coordd.services.Elections":   "coordd.Elections",
	"coordd.services.Peer":        "coordd.peer.Peer",
}

// The places where generated code is changed.
var (
	// serviceName is a service name in the code of protoc-gen-go-grpc: in the constants with the
	// full names of methods, and in service descriptions.
	serviceName = regexp.MustCompile(`"(/?)(coordd\.services\.\w+)([/"])`)
	// copiedString is a string field set from the input, in a decoder that copies.
	copiedString = regexp.MustCompile(`(?m)^(\t+)(m\.(\w+) = .*\bstring\(dAtA\[iNdEx:postIndex\]\).*)$`)
	// sharedString is a string field set in a decoder that does not copy.
	sharedString = regexp.MustCompile(`(?m)^(\t+)(m\.(\w+) = .*\bstringValue\b.*)$`)
	// sharedBytes is a bytes field set in a decoder that does not copy.
	sharedBytes = regexp.MustCompile(`(?m)^(\t+(?:m\.\w+ = (?:append\(m\.\w+, )?|v := )dAtA\[iNdEx:postIndex)(\]\)?)$`)
	// imports is the start of the import block.
	imports = regexp.MustCompile(`(?m)^import \(\n`)
)

// rewrite changes one generated file, by the kind its name tells:
//
//   - Services get their names on the wire.
//   - Decoders refuse strings that are not UTF-8, as proto3 demands and other decoders do.
//     Without that a server could store what no client can read.
//   - Decoders that share the input cut the capacity of what they share, so that appending to a
//     field reallocates instead of overwriting its neighbor.
func rewrite(name, text string) (string, error) {
	switch {
	case strings.HasSuffix(name, "_grpc.pb.go"):
		return renameServices(text)
	case strings.HasSuffix(name, "_vtproto.pb.go"):
		return hardenDecoders(text)
	}
	return text, nil
}

// renameServices puts the names of wireNames in place.
func renameServices(text string) (string, error) {
	var unknown error
	text = serviceName.ReplaceAllStringFunc(text, func(s string) string {
		m := serviceName.FindStringSubmatch(s)
		wire, ok := wireNames[m[2]]
		if !ok {
			unknown = fmt.Errorf("service %s has no name in wireNames; add one", m[2])
		}
		return `"` + m[1] + wire + m[3]
	})
	return text, unknown
}

// hardenDecoders adds the checks and cuts described at rewrite.
func hardenDecoders(text string) (string, error) {
	const check = "${1}if !utf8.Valid(dAtA[iNdEx:postIndex]) {\n" +
		"${1}\treturn fmt.Errorf(\"proto: field ${3} contains invalid UTF-8\")\n" +
		"${1}}\n" +
		"${1}${2}"
	text = sharedBytes.ReplaceAllString(text, "${1}:postIndex${2}")
	checked := sharedString.ReplaceAllString(copiedString.ReplaceAllString(text, check), check)
	if checked != text {
		checked = imports.ReplaceAllString(checked, "import (\n\tutf8 \"unicode/utf8\"\n")
	}
	formatted, err := format.Source([]byte(checked))
	return string(formatted), err
}
