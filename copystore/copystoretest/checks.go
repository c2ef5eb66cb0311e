package copystoretest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leaseholddb/leasehold/copystore"
)

func badNames() []string {
	return []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".hidden", "a/.hidden",
		"A", "a b", "a\\b", "a\x00b", "a\nb", "a?b", "a#b", "a%2e", "ä", "a\xff",
		strings.Repeat("a", copystore.MaxName+1),
	}
}

// A bad name is used without the check's prefix where the prefix would cure it.
func (s subject) spell(bad string) string {
	if bad == "" || bad[0] == '/' || strings.HasPrefix(bad, "..") {
		return bad
	}
	return s.prefix + bad
}

func checkNames(ctx context.Context, s subject) error {
	for _, bad := range badNames() {
		name := s.spell(bad)
		if err := s.Store.Create(ctx, name, strings.NewReader("x"), 1); err == nil {
			return fmt.Errorf("create accepts %q", name)
		}
		if r, err := s.Store.Open(ctx, name); err == nil {
			r.Close()
			return fmt.Errorf("open accepts %q", name)
		} else if errors.Is(err, copystore.ErrNotExist) {
			return fmt.Errorf("open looks for %q", name)
		}
		if err := s.Store.Delete(ctx, name); err == nil {
			return fmt.Errorf("delete accepts %q", name)
		}
	}
	return s.expect(ctx, "")
}

func checkPrefixes(ctx context.Context, s subject) error {
	if err := s.put(ctx, "a/b"); err != nil {
		return err
	}
	for _, bad := range []string{"a", "a/b", "/", "../", "a//", "a/../", ".hidden/", "A/"} {
		refused := false
		for _, err := range s.Store.List(ctx, s.spell(bad)) {
			refused = refused || err != nil
		}
		if !refused {
			return fmt.Errorf("list accepts %q", bad)
		}
	}
	return s.remove(ctx, "a/b")
}

func checkRoundTrip(ctx context.Context, s subject) error {
	bodies := map[string]string{"empty": "", "one": "x", "deep/er/still.db": "a\x00b\xff\r\n", "a-b_c.d": strings.Repeat("leasehold", 1000)}
	for name, body := range bodies {
		if err := s.create(ctx, name, body); err != nil {
			return err
		}
	}
	for name, body := range bodies {
		for range 2 {
			if got, err := s.read(ctx, name); err != nil || got != body {
				return fmt.Errorf("%q reads as %d bytes (%v), want %d", name, len(got), err, len(body))
			}
		}
		if err := s.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func checkCreateOnly(ctx context.Context, s subject) error {
	if err := s.create(ctx, "a", "first"); err != nil {
		return err
	}
	for _, body := range []string{"second", "first", ""} {
		if err := s.create(ctx, "a", body); !errors.Is(err, copystore.ErrExists) {
			return fmt.Errorf("creating %q again gives %v, want ErrExists", body, err)
		}
	}
	if got, err := s.read(ctx, "a"); err != nil || got != "first" {
		return fmt.Errorf("afterwards it reads as %q (%v)", got, err)
	}
	return s.remove(ctx, "a")
}

func checkOpenAbsent(ctx context.Context, s subject) error {
	if err := s.put(ctx, "dir/a"); err != nil {
		return err
	}
	for _, name := range []string{"nothing", "dir", "dir/b", "no/such/dir"} {
		if _, err := s.read(ctx, name); !errors.Is(err, copystore.ErrNotExist) {
			return fmt.Errorf("opening %q gives %v, want ErrNotExist", name, err)
		}
	}
	return s.remove(ctx, "dir/a")
}

func checkListAfterWrite(ctx context.Context, s subject) error {
	for i, body := range []string{"", "x", strings.Repeat("y", 70_000)} {
		name := fmt.Sprintf("dir/o%d", i)
		if err := s.create(ctx, name, body); err != nil {
			return err
		}
		found, err := s.list(ctx, "dir/")
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0].Name != name || found[0].Size != int64(len(body)) {
			return fmt.Errorf("after creating %q of %d bytes the listing is %v", name, len(body), found)
		}
		if err := s.remove(ctx, name); err != nil {
			return err
		}
		if err := s.expect(ctx, "dir/"); err != nil {
			return err
		}
	}
	return nil
}

func checkPrefixBoundary(ctx context.Context, s subject) error {
	names := []string{"t-1/a", "t-1/b/c", "t-10/a", "t-1.x/a", "t-1-/a", "t-/a", "u/t-1/a"}
	if err := s.put(ctx, names...); err != nil {
		return err
	}
	if err := s.expect(ctx, "t-1/", "t-1/a", "t-1/b/c"); err != nil {
		return err
	}
	if err := s.expect(ctx, "t-1/b/", "t-1/b/c"); err != nil {
		return err
	}
	if err := s.expect(ctx, "t-1/a/"); err != nil { // an object is no prefix
		return err
	}
	if err := s.expect(ctx, "", names...); err != nil {
		return err
	}
	return s.remove(ctx, names...)
}

func checkLongListing(ctx context.Context, s subject) error {
	var names []string
	for i := range s.Objects {
		names = append(names, fmt.Sprintf("e%d/o%04d", i%3, i))
	}
	if err := s.put(ctx, names...); err != nil {
		return err
	}
	if err := s.expect(ctx, "", names...); err != nil {
		return err
	}
	return s.remove(ctx, names...)
}

func checkStoppedListing(ctx context.Context, s subject) error {
	names := []string{"a", "b", "c/d", "c/e"}
	if err := s.put(ctx, names...); err != nil {
		return err
	}
	for stop := 1; stop <= len(names); stop++ {
		seen := 0
		for _, err := range s.Store.List(ctx, s.prefix) {
			if err != nil {
				return err
			}
			if seen++; seen == stop {
				break
			}
		}
		if seen != stop {
			return fmt.Errorf("saw %d objects, want %d", seen, stop)
		}
	}
	return s.remove(ctx, names...)
}

func checkDeleteAbsent(ctx context.Context, s subject) error {
	if err := s.put(ctx, "dir/a"); err != nil {
		return err
	}
	if err := s.remove(ctx, "nothing", "dir", "dir/b", "no/such/dir"); err != nil {
		return err
	}
	if err := s.expect(ctx, "", "dir/a"); err != nil {
		return err
	}
	return s.remove(ctx, "dir/a", "dir/a", "dir")
}

func checkDeleteOne(ctx context.Context, s subject) error {
	if err := s.put(ctx, "a/x", "a/xy", "b/x"); err != nil {
		return err
	}
	if err := s.remove(ctx, "a/x"); err != nil {
		return err
	}
	if err := s.expect(ctx, "", "a/xy", "b/x"); err != nil {
		return err
	}
	if _, err := s.read(ctx, "a/x"); !errors.Is(err, copystore.ErrNotExist) {
		return fmt.Errorf("opening the deleted object gives %v", err)
	}
	if err := s.create(ctx, "a/x", "again"); err != nil {
		return fmt.Errorf("the name is not free: %w", err)
	}
	if got, err := s.read(ctx, "a/x"); err != nil || got != "again" {
		return fmt.Errorf("the new object reads as %q (%v)", got, err)
	}
	return s.remove(ctx, "a/x", "a/xy", "b/x")
}
