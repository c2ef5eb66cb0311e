package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// The package comment says how values look on the wire.

// A blobBody is a BLOB, or TEXT that is no UTF-8.
type blobBody struct {
	Base64 *string `json:"base64"`
}

// An argument of a statement, as SQLite takes it.
type argument struct{ value any }

// UnmarshalJSON implements json.Unmarshaler.
func (a *argument) UnmarshalJSON(b []byte) (err error) {
	switch b[0] {
	case 'n':
		a.value = nil
	case 't':
		a.value = int64(1)
	case 'f':
		a.value = int64(0)
	case '"':
		var s string
		err = json.Unmarshal(b, &s)
		a.value = s
	case '{':
		a.value, err = parseBlob(b)
	case '[':
		err = errors.New("an argument cannot be an array")
	default:
		a.value, err = parseNumber(string(b))
	}
	return err
}

// parseNumber makes an INTEGER of what is written like one.
func parseNumber(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	} else if errors.Is(err, strconv.ErrRange) {
		return nil, errors.New("an integer argument does not fit in 64 bits")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, errors.New("a number argument is out of range")
	}
	return f, nil
}

func parseBlob(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var body blobBody
	if err := d.Decode(&body); err != nil || body.Base64 == nil {
		return nil, errors.New(`an object as argument must be {"base64": "…"}`)
	}
	blob, err := base64.StdEncoding.DecodeString(*body.Base64)
	if err != nil {
		return nil, errors.New("an argument is not valid base64")
	}
	return blob, nil
}

// A value of a result, as the driver returned it.
type value struct{ v any }

// Scan implements sql.Scanner. What the driver lends is copied.
func (v *value) Scan(src any) error {
	if b, ok := src.([]byte); ok {
		src = bytes.Clone(b)
	}
	v.v = src
	return nil
}

// size is about the number of bytes that the value takes in a reply.
func (v value) size() int {
	switch x := v.v.(type) {
	case string:
		return len(x)
	case []byte:
		return len(x)
	default:
		return 8
	}
}

// MarshalJSON implements json.Marshaler.
func (v value) MarshalJSON() ([]byte, error) {
	switch x := v.v.(type) {
	case nil:
		return []byte("null"), nil
	case int64:
		return strconv.AppendInt(nil, x, 10), nil
	case bool:
		return strconv.AppendBool(nil, x), nil
	case float64:
		return marshalReal(x)
	case string:
		if !utf8.ValidString(x) {
			return marshalBlob([]byte(x))
		}
		return json.Marshal(x)
	case []byte:
		return marshalBlob(x)
	case time.Time:
		// Not its own MarshalJSON, which refuses years that a column can hold.
		return json.Marshal(x.Format(time.RFC3339Nano))
	default:
		return nil, fmt.Errorf("the driver returned a %T", x)
	}
}

func marshalBlob(b []byte) ([]byte, error) {
	text := base64.StdEncoding.EncodeToString(b)
	return json.Marshal(blobBody{&text})
}

func marshalReal(x float64) ([]byte, error) {
	switch {
	case math.IsInf(x, 1):
		return []byte(`{"real":"Infinity"}`), nil
	case math.IsInf(x, -1):
		return []byte(`{"real":"-Infinity"}`), nil
	}
	return json.Marshal(x)
}
