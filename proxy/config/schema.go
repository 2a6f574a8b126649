package config

import (
	"net/netip"
	"reflect"
	"strings"
	"time"

	"weir/policy"
	"weir/proxy/warm"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	percentType  = reflect.TypeFor[policy.Percent]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
	graceType    = reflect.TypeFor[policy.Grace]()
	sizeType     = reflect.TypeFor[Size]()
	everyType    = reflect.TypeFor[warm.Every]()
)

// isBranch: the type has keys of its own. A grace may have, too, but is one value: whoever writes it writes all of it.
func isBranch(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != prefixType && t != graceType && t != everyType
}

// isList: a list of things with keys, which only the file can hold.
func isList(t reflect.Type) bool { return t.Kind() == reflect.Slice && isBranch(t.Elem()) }

func keyOf(f reflect.StructField) string { return f.Tag.Get("mapstructure") }

func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	return t.FieldByNameFunc(func(name string) bool {
		f, _ := t.FieldByName(name)
		return keyOf(f) == key
	})
}

func keysOf(t reflect.Type) []string {
	keys := make([]string, t.NumField())
	for i := range keys {
		keys[i] = keyOf(t.Field(i))
	}
	return keys
}

func join(path, key string) string {
	if path == "" || key == "" {
		return path + key
	}
	return path + "." + key
}

// eachLeaf calls f for every key below t that holds a value, lists of branches included but not entered.
func eachLeaf(t reflect.Type, path string, f func(path string, t reflect.Type)) {
	for i := range t.NumField() {
		field := t.Field(i)
		if p := join(path, keyOf(field)); isBranch(field.Type) {
			eachLeaf(field.Type, p, f)
		} else {
			f(p, field.Type)
		}
	}
}

// elsewhere finds where a key that was written in the wrong place belongs; "" when nowhere, or in several places.
func elsewhere(key string) string {
	var found []string
	eachLeaf(reflect.TypeFor[Config](), "", func(path string, _ reflect.Type) {
		if path[strings.LastIndex(path, ".")+1:] == key {
			found = append(found, path)
		}
	})
	if len(found) == 1 {
		return found[0]
	}
	return ""
}

// nearest is the candidate that was probably meant; "" when none is near.
func nearest(word string, candidates []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, c := range candidates {
		if d := distance(word, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is Levenshtein's, with one row.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
