package feed

// Topics that are joined by name and followed.
func (f *Feed) Topics() (all []string) {
	for t := range f.exact {
		if f.Follows(t) {
			all = append(all, t)
		}
	}
	return all
}

// Filters with wildcards that are joined.
func (f *Feed) Filters() (all []string) {
	for filter := range f.filters {
		all = append(all, filter)
	}
	return all
}
