package blobstore

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/leaseholddb/leasehold/copystore"
)

const (
	maxAttempts = 6
	maxBackoff  = 5 * time.Second
	dialTimeout = 10 * time.Second
)

// newClient returns a client of the place, and what lets go of its idle
// connections.
func newClient(ctx context.Context, p place) (*s3.Client, func(), error) {
	cfg, err := config.LoadDefaultConfig(ctx, p.configOptions()...)
	if err != nil {
		return nil, nil, err
	}
	if cfg.Region == "" {
		return nil, nil, errors.New("no region: add region=… to the bucket's URL or set AWS_REGION")
	}
	transport := newTransport()
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if p.endpoint != "" {
			o.BaseEndpoint = aws.String(p.endpoint)
		}
		o.UsePathStyle = p.pathStyle
		o.RequestChecksumCalculation = p.checksum
		o.Retryer = newRetryer()
		o.HTTPClient = &http.Client{
			Transport: progressTransport{transport},
			// A redirect names another region's endpoint, for which the signature
			// is wrong; the answer itself is the better error.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		// Stores that send no checksum would be complained about at every read; the
		// manifest's hash is what is believed.
		o.Logger = logging.Nop{}
		o.DisableLogOutputChecksumValidationSkipped = true
	})
	return client, transport.CloseIdleConnections, nil
}

// newTransport is the default one without its proxy of connections for all: more
// of them stay open, since all requests go to one host.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   DefaultMaxUploads + DefaultMaxDownloads,
		IdleConnTimeout:       90 * time.Second,
		ForceAttemptHTTP2:     true,
	}
}

// newRetryer also repeats what S3 asks to have repeated: a conditional write that
// met another one, and requests that are too many. Each request has its own
// attempts; a store that fails for all is not made up for by refusing to try.
func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = maxAttempts
		o.MaxBackoff = maxBackoff
		o.RateLimiter = ratelimit.None
		o.Retryables = append([]retry.IsErrorRetryable{
			retry.RetryableHTTPStatusCode{Codes: map[int]struct{}{http.StatusConflict: {}, http.StatusTooManyRequests: {}}},
		}, o.Retryables...)
	})
}

// A progressTransport reports every byte that moves, so that a slow transfer is
// not taken for a stalled one.
type progressTransport struct{ next http.RoundTripper }

func (p progressTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if req.Body != nil && req.Body != http.NoBody {
		req = req.Clone(ctx)
		req.Body = &progressBody{req.Body, ctx}
	}
	res, err := p.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	copystore.Progress(ctx)
	res.Body = &progressBody{res.Body, ctx}
	return res, nil
}

type progressBody struct {
	io.ReadCloser
	ctx context.Context
}

func (p *progressBody) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if n > 0 {
		copystore.Progress(p.ctx)
	}
	return n, err
}
