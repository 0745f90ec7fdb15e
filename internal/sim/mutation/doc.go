// Package mutation tests the tests: it puts deliberate bugs into copies of the product, one at a time, and expects the
// simulation to notice.
//
// A [Mutation] replaces one piece of text in one file. The product itself knows nothing of it. [Mutations] is the list; an
// ordinary test holds it against the source, so that it follows when the source changes. With the build tag mutate, a further test
// copies the module for each, makes the change there, and runs the simulation in the copy until a seed fails, or hangs. A bug
// that it does not find in its time must be caught by the tests of the package it is in; if those pass, too, the test of the mutation fails.
//
//	make mutations              all of them
//	make mutations ONLY=fsync   those whose names match the pattern
//
// The table it ends with stands in docs/testing.md.
package mutation
