package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A schema reports where a value, decoded with numbers as json.Number, departs
// from it. at is the place of the value in the whole text.
type schema func(v any, at string) []string

// fields are the keys of an object.
type fields map[string]schema

func wrong(at, want string, v any) []string {
	got, err := json.Marshal(v)
	if err != nil || len(got) > 80 {
		got = fmt.Appendf(nil, "%T", v)
	}
	return []string{fmt.Sprintf("%s: want %s, got %s", at, want, got)}
}

func text(v any, at string) []string {
	if _, ok := v.(string); !ok {
		return wrong(at, "a string", v)
	}
	return nil
}

func boolean(v any, at string) []string {
	if _, ok := v.(bool); !ok {
		return wrong(at, "a boolean", v)
	}
	return nil
}

func number(v any, at string) []string {
	if _, ok := v.(json.Number); !ok {
		return wrong(at, "a number", v)
	}
	return nil
}

func integer(v any, at string) []string {
	if n, ok := v.(json.Number); !ok || strings.ContainsAny(n.String(), ".eE") {
		return wrong(at, "an integer", v)
	}
	return nil
}

// anything is any value, null included. Its key must be there all the same.
func anything(any, string) []string { return nil }

// word is a string of a closed vocabulary.
func word(words ...string) schema {
	return func(v any, at string) []string {
		if s, ok := v.(string); !ok || !slices.Contains(words, s) {
			return wrong(at, "one of "+strings.Join(words, ", "), v)
		}
		return nil
	}
}

// orNull is null too, which no other schema is.
func orNull(s schema) schema {
	return func(v any, at string) []string {
		if v == nil {
			return nil
		}
		return s(v, at)
	}
}

func list(s schema) schema {
	return func(v any, at string) []string {
		items, ok := v.([]any)
		if !ok {
			return wrong(at, "an array", v)
		}
		var problems []string
		for i, item := range items {
			problems = append(problems, s(item, fmt.Sprintf("%s/%d", at, i))...)
		}
		return problems
	}
}

// set is a list without duplicates.
func set(words ...string) schema {
	return func(v any, at string) []string {
		problems := list(word(words...))(v, at)
		if items, ok := v.([]any); ok && problems == nil {
			seen := map[any]bool{}
			for _, item := range items {
				if seen[item] {
					problems = append(problems, wrong(at, "no item twice", v)...)
				}
				seen[item] = true
			}
		}
		return problems
	}
}

// closed is an object with these keys and no others.
func closed(required, optional fields) schema {
	return func(v any, at string) []string {
		m, ok := v.(map[string]any)
		if !ok {
			return wrong(at, "an object", v)
		}
		var problems []string
		for _, key := range slices.Sorted(maps.Keys(required)) {
			if _, ok := m[key]; !ok {
				problems = append(problems, fmt.Sprintf("%s/%s: required, but missing", at, key))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(m)) {
			s := required[key]
			if s == nil {
				s = optional[key]
			}
			if s == nil {
				problems = append(problems, fmt.Sprintf("%s/%s: not a key of this object", at, key))
				continue
			}
			problems = append(problems, s(m[key], at+"/"+key)...)
		}
		return problems
	}
}

// typed is a union of objects told apart by their type, which is added to the
// keys of each.
func typed(variants map[string]func(kind schema) schema) schema {
	made := map[string]schema{}
	for name, variant := range variants {
		made[name] = variant(word(name))
	}
	return func(v any, at string) []string {
		m, ok := v.(map[string]any)
		if !ok {
			return wrong(at, "an object", v)
		}
		name, _ := m["type"].(string)
		if made[name] == nil {
			return wrong(at+"/type", "a known type", m["type"])
		}
		return made[name](v, at)
	}
}

// kind is a variant of a union with these keys.
func kind(required, optional fields) func(schema) schema {
	return func(name schema) schema {
		all := maps.Clone(required)
		if all == nil {
			all = fields{}
		}
		all["type"] = name
		return closed(all, optional)
	}
}
