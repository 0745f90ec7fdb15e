package interval

import (
	"bytes"
	"fmt"
)

// Range is a set of neighbouring keys: those k with Begin <= k and, unless End is nil, k < End,
// compared byte by byte. A nil Begin is the empty key, the smallest there is. A nil End has no
// upper bound; note that an empty End that is not nil is a bound below every key. A Range whose End
// is not above its Begin holds no key.
//
// Packages that speak another convention on the wire, such as a single zero byte for "no bound",
// translate before they come here.
type Range struct {
	Begin []byte // first key of the range
	End   []byte // first key behind the range; nil: none
}

// Point is the range of one single key: [key, key+"\x00"). There is no key between the two.
func Point(key []byte) Range {
	end := make([]byte, len(key)+1)
	copy(end, key)
	return Range{Begin: end[:len(key):len(key)], End: end}
}

// Contains reports whether key is in the range.
func (r Range) Contains(key []byte) bool {
	return bytes.Compare(r.Begin, key) <= 0 && endAbove(r.End, key)
}

// Empty reports whether no key is in the range.
func (r Range) Empty() bool { return !endAbove(r.End, r.Begin) }

// Overlaps reports whether some key is in both ranges.
func (r Range) Overlaps(o Range) bool {
	return endAbove(r.End, o.Begin) && endAbove(o.End, r.Begin) && !r.Empty() && !o.Empty()
}

// String shows the range with quoted keys, for messages: ["a", "b").
func (r Range) String() string {
	if r.End == nil {
		return fmt.Sprintf("[%q, ∞)", r.Begin)
	}
	return fmt.Sprintf("[%q, %q)", r.Begin, r.End)
}

// endAbove reports whether the bound end lies above key; a nil bound lies above every key.
func endAbove(end, key []byte) bool { return end == nil || bytes.Compare(end, key) > 0 }

// compareEnds orders bounds; nil is the highest.
func compareEnds(a, b []byte) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return bytes.Compare(a, b)
}

// compareRanges is the order of the tree: by first key, then by bound.
func compareRanges(a, b Range) int {
	if c := bytes.Compare(a.Begin, b.Begin); c != 0 {
		return c
	}
	return compareEnds(a.End, b.End)
}
