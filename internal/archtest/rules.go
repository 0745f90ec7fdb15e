package archtest

// rule is a function that reports what breaks it.
type rule func(t *Tree, report func(Finding))

// rules are all rules of the repository.
func rules() []rule {
	return []rule{
		layersRule, pureRule, libraryRule, initRule, globalsRule, docsRule,
		sizeRule(longFunctions), namesRule, sleepRule, marksRule, pathsRule,
	}
}

// Check runs all rules over the tree.
func Check(t *Tree) []Finding {
	var all []Finding
	for _, r := range rules() {
		r(t, func(f Finding) { all = append(all, f) })
	}
	return all
}
