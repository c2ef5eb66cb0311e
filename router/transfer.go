package router

import (
	"time"

	"go.uber.org/zap"

	"github.com/leaseholddb/leasehold/copystore"
)

// noticeEvery is how long a transfer goes on before the log tells how far it has come,
// and how often it does from then on.
const noticeEvery = 10 * time.Second

// follow returns a callback that logs the progress of one long transfer of a copy. A
// short one leaves no trace.
func (h *Handle) follow(transfer string) func(copystore.Transfer) {
	next := h.now() + noticeEvery
	return func(t copystore.Transfer) {
		now := h.now()
		if now < next {
			return
		}
		next = now + noticeEvery
		h.log().Info(transfer+" of a large copy goes on", zap.Stringer("copy", t.Copy), zap.Int64("bytes", t.Done), zap.Int64("of", t.Total))
	}
}
