package copystore

import (
	"io"

	"github.com/leaseholddb/leasehold/coord"
)

// TransferStep is how many bytes move between two reports of a [Transfer]. What is
// smaller is not reported.
const TransferStep = 8 << 20

// A Transfer says how far the image of a copy has come on its way to or from the
// store. Those of one copy are reported one at a time and in order, by the
// goroutine that moves the bytes: a callback that blocks holds the transfer up.
type Transfer struct {
	Key   coord.Key
	Copy  Ref
	Done  int64 // bytes that have moved
	Total int64 // bytes of the image
}

// A report calls back at every step.
type report struct {
	callback func(Transfer) // may be nil
	at       Transfer
	next     int64 // bytes at which to report
}

func newReport(callback func(Transfer), key coord.Key, ref Ref, total int64) report {
	return report{callback: callback, at: Transfer{Key: key, Copy: ref, Total: total}, next: TransferStep}
}

func (r *report) moved(n int) {
	r.at.Done += int64(n)
	if r.callback != nil && r.at.Done >= r.next {
		r.next = r.at.Done + TransferStep
		r.callback(r.at)
	}
}

type transferWriter struct {
	w io.Writer
	report
}

func (t *transferWriter) Write(b []byte) (int, error) {
	n, err := t.w.Write(b)
	t.moved(n)
	return n, err
}

type transferReader struct {
	r io.Reader
	report
}

func (t *transferReader) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.moved(n)
	return n, err
}
