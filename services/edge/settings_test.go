package edge

import "testing"

// Unless an operator says otherwise, one address can't take more than a quarter of the groups.
func TestAnAddressHasAQuarterOfTheGroups(t *testing.T) {
	for _, c := range []struct{ most, address, want int }{{50_000, 0, 12_500}, {2, 0, 1}, {0, 0, 0}, {100, 80, 80}, {0, 7, 7}} {
		s := Settings{MaxGroups: c.most, AddressGroups: c.address}
		if got := s.addressGroups(); got != c.want {
			t.Errorf("of %d groups, with --address-groups %d, an address has %d, want %d", c.most, c.address, got, c.want)
		}
	}
}
