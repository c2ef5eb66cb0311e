package coord

import (
	"fmt"
	"strings"
)

const (
	maxOrganization = 63
	tenantPrefix    = "t-"
	tenantHexDigits = 32
)

// A Key names one tenant of one organization, and with it the tenant's lease,
// its directory on a replica and its prefix in the copy store.
//
// Only [NewKey] and [ParseKey] make a non-zero Key, so whoever holds one may
// build paths and object names from it without checking again: its parts hold
// nothing but lowercase letters, digits and dashes. Keys are comparable and may
// be used as map keys. The zero Key is no tenant; stores refuse it with
// [CodeIDInvalid].
type Key struct {
	organization string
	tenant       string
}

// NewKey makes the Key of a tenant. An organization id is 1–63 characters of
// [a-z0-9-] and starts with a letter or a digit. A tenant id is "t-" and 32
// lowercase hex digits; see [OrganizationKey.TenantID] for where it comes from.
// Anything else is refused with [CodeIDInvalid].
func NewKey(organization, tenant string) (Key, error) {
	if err := ValidateOrganization(organization); err != nil {
		return Key{}, err
	}
	if err := ValidateTenant(tenant); err != nil {
		return Key{}, err
	}
	return Key{organization: organization, tenant: tenant}, nil
}

// ParseKey is the inverse of [Key.String]. It refuses everything that String
// cannot have written with [CodeIDInvalid].
func ParseKey(s string) (Key, error) {
	organization, tenant, ok := strings.Cut(s, "/")
	if !ok {
		return Key{}, idInvalid("lease key", "must be an organization id, a slash and a tenant id")
	}
	return NewKey(organization, tenant)
}

// Organization returns the organization id, "" for the zero Key.
func (k Key) Organization() string { return k.organization }

// Tenant returns the tenant id, "" for the zero Key.
func (k Key) Tenant() string { return k.tenant }

// IsZero reports whether k is the zero Key, which names no tenant.
func (k Key) IsZero() bool { return k == Key{} }

// String returns the lease key, "<organization>/<tenant>", which is also the
// tenant's prefix in the copy store; "" for the zero Key.
func (k Key) String() string {
	if k.IsZero() {
		return ""
	}
	return k.organization + "/" + k.tenant
}

// Dir returns the tenant's directory relative to a replica's state root, with
// forward slashes: "orgs/<organization>/tenants/<tenant>". It is never
// absolute and never leaves the root.
func (k Key) Dir() string {
	if k.IsZero() {
		return ""
	}
	return "orgs/" + k.organization + "/tenants/" + k.tenant
}

// Validate refuses the zero Key with [CodeIDInvalid]; every other Key is valid
// by construction.
func (k Key) Validate() error {
	if k.IsZero() {
		return idInvalid("lease key", "is empty")
	}
	return nil
}

// MarshalText implements [encoding.TextMarshaler] with [Key.String].
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseKey].
func (k *Key) UnmarshalText(text []byte) error {
	parsed, err := ParseKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

// ValidateOrganization reports with [CodeIDInvalid] why s is no organization id.
func ValidateOrganization(s string) error {
	if s == "" || len(s) > maxOrganization {
		return idInvalid("organization id", fmt.Sprintf("must have 1 to %d characters", maxOrganization))
	}
	if s[0] == '-' {
		return idInvalid("organization id", "must start with a letter or a digit")
	}
	for i := range len(s) {
		if c := s[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return idInvalid("organization id", "may hold only a-z, 0-9 and -")
		}
	}
	return nil
}

// ValidateTenant reports with [CodeIDInvalid] why s is no tenant id.
func ValidateTenant(s string) error {
	digits, ok := strings.CutPrefix(s, tenantPrefix)
	if !ok || len(digits) != tenantHexDigits {
		return idInvalid("tenant id", fmt.Sprintf("must be %q and %d lowercase hex digits", tenantPrefix, tenantHexDigits))
	}
	for i := range len(digits) {
		if c := digits[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return idInvalid("tenant id", fmt.Sprintf("must be %q and %d lowercase hex digits", tenantPrefix, tenantHexDigits))
		}
	}
	return nil
}

// idInvalid never repeats the offending text: it may be personal data, and it
// ends up in logs.
func idInvalid(what, why string) error {
	return &Error{Code: CodeIDInvalid, Detail: what + " " + why}
}
