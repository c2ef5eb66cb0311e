//go:build simmutation

package safeguards

import "sync/atomic"

// Switchable says whether this build has switches.
const Switchable = true

// off is the one safeguard that is taken out. It is of the whole process: what has to
// notice it runs the product unchanged, without a way to hand it anything.
var off atomic.Value

// Off reports whether s is taken out.
func Off(s Safeguard) bool { return off.Load() == s }

// Switch takes s out, and nothing else; [None] puts everything back.
func Switch(s Safeguard) { off.Store(s) }
