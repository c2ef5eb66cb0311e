//go:build !simmutation

package safeguards

// Switchable says whether this build has switches.
const Switchable = false

// Off reports whether s is taken out, which it is not.
func Off(Safeguard) bool { return false }
