package httpapi

import "testing"

func TestHasLoneSurrogate(t *testing.T) {
	for body, want := range map[string]bool{
		`{}`:                         false,
		`"\ud83d\ude00"`:             false,
		`"\ud83d\ude00\ud83d\ude00"`: false,
		`"\\ud800"`:                  false, // a backslash, then letters
		`"\u0041\n\""`:               false,
		`"\ud800"`:                   true,
		`"\udc00"`:                   true,
		`"\ud800x"`:                  true,
		`"\ud800\n"`:                 true,
		`"\ud800\ud800\udc00"`:       true,
		`"\ude00\ud83d"`:             true,
		`"\ud800`:                    true,
		`"\ud8`:                      false, // no JSON; others say so
		`\`:                          false,
	} {
		if got := hasLoneSurrogate([]byte(body)); got != want {
			t.Errorf("hasLoneSurrogate(%s) = %v, want %v", body, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"actor":"\ud83d\ude00","payload":[1,{"a":null}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var v appendBody
		if err := decode(body, &v); err == nil && hasLoneSurrogate(body) {
			t.Fatalf("half a character was accepted in %q", body)
		}
	})
}
