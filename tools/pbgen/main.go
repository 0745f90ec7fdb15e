// Pbgen makes the Go code of the API from its .proto files, without a protobuf compiler being
// installed. The one command, from the folder tools:
//
//	go run ./pbgen
//
// It reads every .proto file below ../api/proto, compiles them with protocompile, and gives the
// descriptors to the three generator plugins, which are tools of this module (go.mod pins their
// versions) and run by "go tool":
//
//   - protoc-gen-go and protoc-gen-go-vtproto for the files with messages: types, and encoders and
//     decoders without reflection;
//   - protoc-gen-go-grpc for the files below coordd/services: clients and servers.
//
// What they make is changed by the rules of rewrite.go (which says why) and written below ../api.
// The same input gives the same bytes: files are taken in order of their names and nothing depends
// on time or machine. Generated files are part of the repository; after a change of a .proto
// file run the command and commit both.
//
// A generated file of a .proto file that no longer exists is removed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// module is the Go module the code is for: the prefix of every go_package option.
const module = "github.com/coordd/coordd"

// servicesDir holds the files that declare services and nothing else.
const servicesDir = "coordd/services/"

// plugin is one run of one generator.
type plugin struct {
	tool     string
	param    string
	services bool // for the files below servicesDir, else for all others
}

func main() {
	in := flag.String("in", "../api/proto", "root of the .proto files")
	out := flag.String("out", "..", "root of the Go module to write to")
	flag.Parse()
	if err := run(context.Background(), *in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "pbgen:", err)
		os.Exit(1)
	}
}

// run generates everything: in is the root of the .proto files, out the root of the module.
func run(ctx context.Context, in, out string) error {
	plugins := []plugin{
		{tool: "protoc-gen-go", param: "module=" + module},
		{tool: "protoc-gen-go-vtproto", param: "module=" + module + ",features=marshal+unmarshal+unmarshal_unsafe+size"},
		{tool: "protoc-gen-go-grpc", param: "module=" + module, services: true},
	}
	names, err := protoFiles(in)
	if err != nil {
		return err
	}
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{in}},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return fmt.Errorf("compile %s: %w", in, err)
	}
	made := map[string]string{}
	for _, p := range plugins {
		if err := p.run(ctx, names, files, made); err != nil {
			return err
		}
	}
	return write(out, made)
}

// protoFiles gives the names of all .proto files below root, relative to it, in order.
func protoFiles(root string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".proto" {
			return err
		}
		rel, err := filepath.Rel(root, path)
		names = append(names, filepath.ToSlash(rel))
		return err
	})
	slices.Sort(names)
	return names, err
}

// run runs the plugin over the files it is for and adds what it makes to made, by path.
func (p plugin) run(ctx context.Context, names []string, files linker.Files, made map[string]string) error {
	req := &pluginpb.CodeGeneratorRequest{Parameter: &p.param, ProtoFile: descriptors(files)}
	for _, name := range names {
		if strings.HasPrefix(name, servicesDir) == p.services {
			req.FileToGenerate = append(req.FileToGenerate, name)
		}
	}
	input, err := proto.Marshal(req)
	if err != nil {
		return fmt.Errorf("request for %s: %w", p.tool, err)
	}
	cmd := exec.CommandContext(ctx, "go", "tool", p.tool)
	cmd.Stdin = strings.NewReader(string(input))
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go tool %s: %w", p.tool, err)
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &resp); err != nil {
		return fmt.Errorf("answer of %s: %w", p.tool, err)
	}
	if resp.Error != nil {
		return fmt.Errorf("%s: %s", p.tool, resp.GetError())
	}
	for _, f := range resp.GetFile() {
		text, err := rewrite(f.GetName(), f.GetContent())
		if err != nil {
			return fmt.Errorf("rewrite %s: %w", f.GetName(), err)
		}
		made[f.GetName()] = text
	}
	return nil
}

// descriptors gives the files and all they import, each after its imports, as plugins expect.
func descriptors(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var list []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		list = append(list, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, f := range files {
		add(f)
	}
	return list
}

// write puts the files below root, and removes generated files of earlier runs that no longer
// belong there.
func write(root string, made map[string]string) error {
	err := filepath.WalkDir(filepath.Join(root, "api"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".pb.go") {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if _, ok := made[filepath.ToSlash(rel)]; ok {
			return nil
		}
		return os.Remove(path)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for name, text := range made {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
