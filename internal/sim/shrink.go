package sim

import "slices"

// shrink looks for a small part of a plan that still breaks something, with so many tries at most. A run is
// not wholly determined by its plan, so a part that did not break anything may do so at another time; what
// is returned did break something, or is the whole plan.
func shrink(plan []Fault, tries int, breaks func([]Fault) bool) (small []Fault, runs int) {
	small = plan
	for size := max(1, len(small)/2); runs < tries; {
		shorter := false
		for at := 0; at < len(small) && runs < tries; {
			part := slices.Delete(slices.Clone(small), at, min(at+size, len(small)))
			runs++
			if breaks(slices.Clip(append([]Fault{}, part...))) {
				small, shorter = part, true
			} else {
				at += size
			}
		}
		if size == 1 && !shorter {
			break
		}
		size = max(1, size/2)
	}
	return small, runs
}
