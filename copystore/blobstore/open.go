package blobstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"gocloud.dev/blob/s3blob"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// Scheme is what URLs of buckets begin with.
const Scheme = "s3"

const defaultRegion = "us-east-1" // for a custom endpoint, where the region is only a part of the signature

// Open returns the store that rawURL names, after proving like [New] that it keeps
// the contract:
//
//	s3://bucket/prefix?region=eu-central-1
//	s3://bucket?endpoint=https://minio.example:9000&checksum=when_required
//
// Credentials, and the region if it is not given, come from where AWS's tools
// have them: the AWS_… variables, the shared files, the instance. They are
// refused in the URL, which ends up in logs. The parameters are:
//
//   - endpoint: URL of a store other than AWS
//   - region: needed with AWS if AWS_REGION is not set
//   - path_style: whether the bucket goes into the path instead of the host name;
//     true by default if there is an endpoint
//   - checksum: when_supported (the default) sends a CRC-32 with every write;
//     when_required does not, for stores that reject such headers or trailers
//   - uploads, downloads: Options.MaxUploads and MaxDownloads
//
// A URL that says something else is [coord.CodeOptionsInvalid]; nothing is
// contacted before that.
func Open(ctx context.Context, rawURL string, o Options) (*Store, error) {
	place, err := parseURL(rawURL, &o)
	if err != nil {
		return nil, &coord.Error{Code: coord.CodeOptionsInvalid, Op: "blobstore", Err: err}
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	client, hangUp, err := newClient(ctx, place)
	if err != nil {
		return nil, fmt.Errorf("blobstore: %w", err)
	}
	bucket, err := s3blob.OpenBucket(ctx, client, place.bucket, &s3blob.Options{RequestChecksumCalculation: place.checksum})
	if err != nil {
		return nil, fmt.Errorf("blobstore: %w", err)
	}
	return newStore(ctx, bucket, place.bucket, hangUp, o)
}

// CheckURL returns the error that Open would have for the URL itself.
func CheckURL(rawURL string) error {
	var o Options
	if _, err := parseURL(rawURL, &o); err != nil {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "blobstore", Err: err}
	}
	return o.Validate()
}

// A place is where a bucket is and how it is spoken to.
type place struct {
	bucket    string
	endpoint  string // empty: AWS
	region    string // empty: as AWS's tools are configured
	pathStyle bool
	checksum  aws.RequestChecksumCalculation
}

func parseURL(rawURL string, o *Options) (place, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error would repeat what may hold a password.
		return place{}, errors.New("the bucket's URL cannot be parsed")
	}
	switch {
	case u.User != nil:
		return place{}, errors.New("a bucket's URL must not hold credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	case u.Scheme != Scheme || u.Host == "" || u.Opaque != "" || u.Fragment != "":
		return place{}, fmt.Errorf("%q is not of the form %s://bucket/prefix?parameters", rawURL, Scheme)
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		if copystore.ValidateName(prefix) != nil {
			return place{}, fmt.Errorf("prefix %q may hold only a-z, 0-9, dot, underscore, dash and slash", prefix)
		}
		o.Prefix = prefix + "/"
	}
	p := place{bucket: u.Host, checksum: aws.RequestChecksumCalculationWhenSupported}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return place{}, errors.New("the parameters of the bucket's URL cannot be parsed")
	}
	p.pathStyle = query.Get("endpoint") != ""
	var problems []error
	for name, values := range query {
		if len(values) != 1 {
			problems = append(problems, fmt.Errorf("parameter %s is given more than once", name))
			continue
		}
		if err := p.set(o, name, values[0]); err != nil {
			problems = append(problems, err)
		}
	}
	return p, errors.Join(problems...)
}

func (p *place) set(o *Options, name, value string) (err error) {
	switch name {
	case "endpoint":
		u, bad := url.Parse(value)
		if bad != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return errors.New("endpoint must be http://host:port or https://host:port")
		}
		p.endpoint = value
	case "region":
		p.region = value
	case "path_style":
		p.pathStyle, err = strconv.ParseBool(value)
	case "checksum":
		switch value {
		case "when_supported":
			p.checksum = aws.RequestChecksumCalculationWhenSupported
		case "when_required":
			p.checksum = aws.RequestChecksumCalculationWhenRequired
		default:
			return fmt.Errorf("checksum must be when_supported or when_required, not %q", value)
		}
	case "uploads":
		o.MaxUploads, err = strconv.Atoi(value)
	case "downloads":
		o.MaxDownloads, err = strconv.Atoi(value)
	default:
		return fmt.Errorf("parameter %q is not known", name)
	}
	if err != nil {
		return fmt.Errorf("%s %q: not a value of its kind", name, value)
	}
	return nil
}

func (p place) configOptions() []func(*config.LoadOptions) error {
	var options []func(*config.LoadOptions) error
	if p.region != "" {
		options = append(options, config.WithRegion(p.region))
	}
	if p.endpoint != "" {
		options = append(options, config.WithDefaultRegion(defaultRegion))
	}
	return options
}
