package main

import (
	"errors"
	"reflect"
	"slices"
	"text/template"
)

// errCycle ends a case that puts a map into itself: printing it would end the process.
var errCycle = errors.New("a map contains itself")

// withoutCycles wraps the function that changes maps.
func withoutCycles(all template.FuncMap) {
	set := all["set"].(func(map[string]any, string, any) map[string]any)
	all["set"] = func(into map[string]any, key string, value any) map[string]any {
		changed := set(into, key, value)
		if isCyclic(reflect.ValueOf(changed), nil) {
			panic(errCycle)
		}
		return changed
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
