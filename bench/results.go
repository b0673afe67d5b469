package main

import "strings"

// results collects one value per contender and repetition.
type results[T any] struct {
	names  []string // in the order they were first seen
	byName map[string][]T
	voids  map[string]string // why a contender has no result
}

// add keeps what one repetition of a contender gave. An error voids all of the
// contender's results: a number from the runs that happened to go well would
// flatter it.
func (r *results[T]) add(name string, v T, err error) {
	if r.byName == nil {
		r.byName, r.voids = map[string][]T{}, map[string]string{}
	}
	if _, known := r.byName[name]; !known {
		r.names = append(r.names, name)
		r.byName[name] = nil
	}
	if err != nil {
		r.voids[name] = oneLine(err)
		return
	}
	r.byName[name] = append(r.byName[name], v)
}

// oneLine is the text of an error for a table.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// void reports why a contender has no result, or "".
func (r *results[T]) void(name string) string { return r.voids[name] }

// of is one figure of a contender over the repetitions. It is empty if the
// contender did not run or is void.
func (r *results[T]) of(name string, figure func(T) float64) series {
	if r.void(name) != "" {
		return nil
	}
	var s series
	for _, v := range r.byName[name] {
		s = append(s, figure(v))
	}
	return s
}

// A column is one column of a table of contenders.
type column struct {
	head string
	cell func(name string) string
}

// each shows a figure of every contender: the median alone, or with its extremes.
func (r *results[T]) each(head string, show func(series) string, figure func(T) float64) column {
	return column{head, func(name string) string { return show(r.of(name, figure)) }}
}

// over shows a figure of every contender as multiples of the base's.
func (r *results[T]) over(head string, show func(series) string, figure func(T) float64, base string) column {
	return column{head, func(name string) string { return show(r.of(name, figure).over(r.of(base, figure))) }}
}

// table has a row for each contender, in the order in which they were seen.
func (r *results[T]) table(title, note, first string, columns ...column) table {
	t := table{title: title, notes: []string{note}, head: []string{first}}
	for _, c := range columns {
		t.head = append(t.head, c.head)
	}
	for _, name := range r.names {
		row := []string{name}
		if why := r.void(name); why != "" {
			row = append(row, "void: "+why)
		} else {
			for _, c := range columns {
				row = append(row, c.cell(name))
			}
		}
		t.add(row...)
	}
	return t
}
