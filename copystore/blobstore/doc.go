// Package blobstore keeps durable copies in a bucket: S3, or a store that speaks
// its language and honours conditional writes, over gocloud.dev/blob.
//
// # What the bucket must do
//
// Copies are safe from superseded owners only because no object is ever
// overwritten. So the bucket must refuse a PUT, and the completion of a multipart
// upload, that carry If-None-Match: * when the name is taken, also when two of
// them arrive together; and what was written must be read and listed at once.
// Stores exist that accept the header and ignore it. [Open] and [New] therefore
// try all of this on objects of their own below "_probe/" and refuse, with
// [ErrUnfit], a bucket that does not keep it.
//
// # Retries and unclear answers
//
// A request is repeated with back-off after a 409 (two conditional writes met;
// neither has won yet), a 429, a 5xx, a broken connection, and a signature that
// clock skew made invalid. If the first attempt had succeeded and only its answer
// was lost, the repeated one finds the name taken. So every object carries the
// attempt that made it as metadata, and Create recognises its own. Where a bucket
// drops metadata it returns [copystore.ErrExists], and package copystore, which
// knows what it wrote, reads the object back and recognises it.
//
// # Large objects
//
// An object larger than a part ([DefaultPartSize]) is uploaded in parts, two at a
// time; memory is two parts for each upload under way. An upload that fails is
// aborted, in the background and with a time-out of its own, so that a caller
// whose context has ended does not wait and parts are not left behind;
// [Store.Close] waits for that. What a killed process leaves is removed by
// [Store.Sweep].
package blobstore
