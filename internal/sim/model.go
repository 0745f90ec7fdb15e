package sim

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// This file is the second opinion on the registers: a sequential specification, and porcupine's search for an
// order that satisfies it. It shares no code with verify.go.

// registers is the state of the specification: what each register holds, "" = nothing, and the newest revision seen. It is
// small and comparable because the search makes and compares very many.
type registers struct {
	values [maxKeys]string
	rev    int64
}

// register is the place of a key.
func register(key string) int { return int(key[len(registerPrefix)] - '0') }

// outcome is what a client got, and what the ledger has settled.
type outcome struct {
	known bool
	rev   int64 // 0 = unknown
	op    *op
}

// registersModel is the specification. Inputs are requests, outputs are outcomes.
func registersModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return registers{rev: 1} },
		Step: func(s, in, out any) (bool, any) {
			next, ok := s.(registers).step(in.(request), out.(outcome))
			return ok, next
		},
		Equal:             func(a, b any) bool { return a.(registers) == b.(registers) },
		DescribeOperation: func(_, out any) string { return out.(outcome).op.String() },
		DescribeState: func(s any) string {
			r := s.(registers)
			var b strings.Builder
			for k, v := range r.values {
				if v != "" {
					fmt.Fprintf(&b, "%s%d=%s ", registerPrefix, k, v)
				}
			}
			return fmt.Sprintf("%s@%d", b.String(), r.rev)
		},
	}
}

func (s registers) step(r request, out outcome) (next registers, ok bool) {
	if out.rev != 0 && out.rev < s.rev {
		return s, false
	}
	holds := true
	for _, c := range r.conds {
		holds = holds && s.values[register(c.key)] == c.value
	}
	if out.known && holds != out.op.succeeded {
		return s, false
	}
	next = s
	wrote := false
	for i, a := range r.actions(holds) {
		held := s.values[register(a.key)]
		switch a.kind {
		case get:
			if out.known && out.op.results[i].cell.Value != held {
				return s, false
			}
		case put:
			next.values[register(a.key)], wrote = a.value, true
		default:
			if out.known && (out.op.results[i].deleted == 1) != (held != "") {
				return s, false
			}
			wrote = wrote || held != ""
			next.values[register(a.key)] = ""
		}
	}
	switch {
	case out.rev == 0 && wrote:
		next.rev++ // at the least
	case out.rev == 0:
	case wrote && out.rev <= s.rev:
		return s, false
	default:
		next.rev = out.rev
	}
	return next, true
}

// linearize looks for an order of the registers' requests. An op without an answer is settled by the ledger: it took effect at
// the revision at which its values stand, or, if they stand nowhere, never. One that only deletes may take effect at
// any time after its call, or never.
func (v *verdict) linearize(atMost time.Duration) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	var ops []porcupine.Operation
	for _, o := range v.c.history.ops {
		if o.req.serializable || !strings.HasPrefix(o.req.then[0].key, registerPrefix) {
			continue
		}
		out := outcome{known: o.known, rev: o.rev, op: o}
		back := int64(o.back)
		if !o.known {
			back = math.MaxInt64
			for out.rev = range v.puts[o] {
			}
			if out.rev == 0 && !deletesOnly(o.req) {
				continue
			}
		}
		ops = append(ops, porcupine.Operation{ClientId: o.client, Input: o.req, Output: out, Call: int64(o.call), Return: back})
	}
	return porcupine.CheckOperationsVerbose(registersModel(), ops, atMost)
}

// deletesOnly reports whether a request may change something without putting a value.
func deletesOnly(r request) bool {
	for _, actions := range [][]action{r.then, r.orElse} {
		puts, removes := 0, 0
		for _, a := range actions {
			if a.kind == put {
				puts++
			} else if a.kind == remove {
				removes++
			}
		}
		if puts == 0 && removes > 0 {
			return true
		}
	}
	return false
}
