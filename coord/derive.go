package coord

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// MinOrganizationKey is the least number of bytes in an organization key.
	MinOrganizationKey = 32
	// MaxIdentity is the greatest number of bytes in an issuer or a subject.
	MaxIdentity = 512

	// partitionContext is a wire constant of deployments that exist already.
	partitionContext = "gotry/prompt-cache-partition/v1"
	partitionPrefix  = "pc-"
	labelHexDigits   = 32
)

// An OrganizationKey is the secret from which an organization's tenant ids and
// partition labels are derived. It never appears in logs: formatting one prints
// a placeholder. It is safe for concurrent use.
type OrganizationKey struct {
	secret []byte
}

// NewOrganizationKey takes a copy of secret, which must have at least
// [MinOrganizationKey] bytes; a shorter one is refused with [CodeIDInvalid].
func NewOrganizationKey(secret []byte) (OrganizationKey, error) {
	if len(secret) < MinOrganizationKey {
		return OrganizationKey{}, idInvalid("organization key", fmt.Sprintf("must have at least %d bytes", MinOrganizationKey))
	}
	return OrganizationKey{secret: append([]byte(nil), secret...)}, nil
}

// TenantID derives the tenant id of the end user whom issuer knows as subject:
// "t-" and the first 32 hex digits of HMAC-SHA256(key, issuer ‖ 0x00 ‖ subject).
//
// Issuer and subject count byte for byte, without Unicode normalization. Each
// must be non-empty, well-formed UTF-8 of at most [MaxIdentity] bytes without a
// NUL, so that no two pairs share an input of the HMAC; anything else is refused
// with [CodeIDInvalid].
func (k OrganizationKey) TenantID(issuer, subject string) (string, error) {
	if err := k.validate(); err != nil {
		return "", err
	}
	if err := validateIdentity("issuer", issuer); err != nil {
		return "", err
	}
	if err := validateIdentity("subject", subject); err != nil {
		return "", err
	}
	return tenantPrefix + k.label(issuer, subject), nil
}

// PartitionLabel derives the prompt-cache partition label of a tenant: stable on
// every replica, not computable without the key, and different from the tenant
// id. A malformed tenant id is refused with [CodeIDInvalid].
func (k OrganizationKey) PartitionLabel(tenant string) (string, error) {
	if err := k.validate(); err != nil {
		return "", err
	}
	if err := ValidateTenant(tenant); err != nil {
		return "", err
	}
	return partitionPrefix + k.label(partitionContext, tenant), nil
}

// String hides the secret.
func (k OrganizationKey) String() string { return "OrganizationKey(hidden)" }

// GoString hides the secret from %#v.
func (k OrganizationKey) GoString() string { return k.String() }

func (k OrganizationKey) validate() error {
	if len(k.secret) < MinOrganizationKey {
		return idInvalid("organization key", "is empty")
	}
	return nil
}

func (k OrganizationKey) label(first, second string) string {
	mac := hmac.New(sha256.New, k.secret)
	mac.Write([]byte(first))
	mac.Write([]byte{0})
	mac.Write([]byte(second))
	return hex.EncodeToString(mac.Sum(nil))[:labelHexDigits]
}

func validateIdentity(what, s string) error {
	switch {
	case s == "":
		return idInvalid(what, "is empty")
	case len(s) > MaxIdentity:
		return idInvalid(what, fmt.Sprintf("has more than %d bytes", MaxIdentity))
	case !utf8.ValidString(s):
		return idInvalid(what, "is not well-formed UTF-8")
	case strings.ContainsRune(s, 0):
		return idInvalid(what, "contains a NUL")
	}
	return nil
}
