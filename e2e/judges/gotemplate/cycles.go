package main

import (
	"errors"
	"reflect"
	"slices"
	"text/template"
)

// errCycle ends a case that puts a map into itself: printing it would end the process.
var errCycle = errors.New("a map contains itself")

// withoutCycles wraps the functions that change maps.
func withoutCycles(all template.FuncMap) {
	for _, name := range []string{"set", "merge", "mergeOverwrite", "mustMerge", "mustMergeOverwrite"} {
		function := reflect.ValueOf(all[name])
		wrapped := func(arguments []reflect.Value) []reflect.Value {
			var results []reflect.Value
			if function.Type().IsVariadic() {
				results = function.CallSlice(arguments)
			} else {
				results = function.Call(arguments)
			}
			if isCyclic(arguments[0], nil) {
				panic(errCycle)
			}
			return results
		}
		all[name] = reflect.MakeFunc(function.Type(), wrapped).Interface()
	}
}

// isCyclic tells whether a value contains itself. above are the maps around it.
func isCyclic(value reflect.Value, above []uintptr) bool {
	switch value.Kind() {
	case reflect.Interface, reflect.Pointer:
		return !value.IsNil() && isCyclic(value.Elem(), above)
	case reflect.Slice:
		for i := range value.Len() {
			if isCyclic(value.Index(i), above) {
				return true
			}
		}
	case reflect.Map:
		if value.IsNil() {
			return false
		}
		if slices.Contains(above, value.Pointer()) {
			return true
		}
		for _, key := range value.MapKeys() {
			if isCyclic(value.MapIndex(key), append(above, value.Pointer())) {
				return true
			}
		}
	}
	return false
}
